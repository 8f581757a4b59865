// Watch: keys under a prefix as they change, and who reads a configuration container now. The route holds
// what is watched; the two parts are independent.
import { html } from "./lib-html.js";
import { mayAny } from "./lib-access.js";
import { href, route } from "./lib-router.js";
import { Notice, PageHead, Tabs } from "./lib-ui.js";
import { WatchKeys } from "./watch-keys.js";
import { Readers } from "./watch-readers.js";

const PARTS = [
  { id: "keys", label: "Changes of keys", part: WatchKeys, isAllowed: () => mayAny("watch", "keys") },
  { id: "readers", label: "Readers of configuration", part: Readers, isAllowed: () => mayAny("read",
    "config") },
];

export default function Watch() {
  const allowed = PARTS.filter(({ isAllowed }) => isAllowed());
  const current = allowed.find(({ id }) => id === route.value.parts[0]) ?? allowed[0];
  return html`<${PageHead} title="Watch" />
    <${Tabs} label="What to watch" current=${current?.id} items=${allowed.map(({ id, label }) =>
      ({ id, label, link: href(["watch", id]) }))} />
    ${current ? html`<${current.part} />` : html`<${Notice} kind="warn"
      title="Your grants allow no watch" />`}`;
}
