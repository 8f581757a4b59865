// Access: principals, roles and tokens, whether tokens are required, and the questions "what may X do?" and
// "who may write Y?". It loads all of them together; the parts are in access-*.js.
import { html, useState } from "./lib-html.js";
import { get, put } from "./lib-api.js";
import { useLoad } from "./lib-load.js";
import { FormDialog } from "./lib-dialog.js";
import { href, route } from "./lib-router.js";
import { Badge, Button, Loaded, PageHead, Tabs } from "./lib-ui.js";
import { Principals } from "./access-principals.js";
import { Roles } from "./access-roles.js";
import { Tokens } from "./access-tokens.js";
import { Questions } from "./access-questions.js";
import { loadSession } from "./sign-in.js";

const TABS = [["principals", "Principals"], ["roles", "Roles"], ["tokens", "Tokens"], ["questions",
  "Who may what?"]];
const PARTS = { principals: Principals, roles: Roles, tokens: Tokens, questions: Questions };

async function loadAccess(signal) {
  const options = { signal };
  const [{ required }, { roles }, { principals }, { tokens }] = await Promise.all(
    ["", "/roles", "/principals", "/tokens"].map((part) => get(`/v1/auth${part}`, {}, options)));
  return { required, roles, principals, tokens };
}

export default function Access() {
  const load = useLoad(loadAccess, []);
  const tab = PARTS[route.value.parts[0]] ? route.value.parts[0] : "principals";
  const Part = PARTS[tab];
  return html`<${PageHead} title="Access" actions=${load.data && html`<${Requirement}
    required=${load.data.required} onChanged=${load.reload} />`} />
    <${Tabs} label="Parts of access" current=${tab} items=${TABS.map(([id, label]) =>
      ({ id, label, link: href(["access", id]), amount: load.data?.[id]?.length }))} />
    <${Loaded} load=${load} render=${(data) => html`<${Part} access=${data} onChanged=${load.reload} />`} />`;
}

function Requirement({ required, onChanged }) {
  const [isOpen, setOpen] = useState(false);
  const run = async () => {
    await put("/v1/auth", { required: !required });
    setOpen(false);
    await loadSession();
    onChanged();
  };
  return html`<${Badge} kind=${required ? "ok" : "warn"}>${required ? "Tokens are required"
    : "Tokens are not required"}<//>
    <${Button} onClick=${() => setOpen(true)}>${required ? "Stop requiring…" : "Require tokens…"}<//>
    ${isOpen && html`<${FormDialog} title=${required ? "Stop requiring tokens" : "Require tokens"}
      danger=${required}
      submit=${required ? "Stop requiring" : "Require"} onClose=${() => setOpen(false)} onSubmit=${run}>
      ${required
        ? html`<p>Everyone who reaches a port of a node may then read and change everything.</p>`
        : html`<p>Each node then refuses requests without a valid token. Have the token of an administrator at
            hand: this page will ask for it. The cluster refuses the change if no administrator has a valid
            token.</p>`}<//>`}`;
}
