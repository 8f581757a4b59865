// Configuration: chooses the page of the route. `#/config`, `#/config/NAMESPACE`,
// `#/config/NAMESPACE/pair/KEY`, `…/container/KEY`, `…/draft/NAME`, `…/new-pair`, `…/new-container`.
import { html } from "./lib-html.js";
import { route } from "./lib-router.js";
import { Empty } from "./lib-ui.js";
import { ContainerPage, NewContainerPage } from "./config-container.js";
import { DraftPage } from "./config-drafts.js";
import { NamespacePage } from "./config-namespace.js";
import { NamespacesPage } from "./config-namespaces.js";
import { NewPairPage, PairPage } from "./config-pair.js";

const pages = { pair: PairPage, container: ContainerPage, draft: DraftPage, "new-pair": NewPairPage,
  "new-container": NewContainerPage };

export default function ConfigScreen() {
  const [namespace, page, name] = route.value.parts;
  if (namespace === undefined) return html`<${NamespacesPage} />`;
  const key = JSON.stringify(route.value.parts);
  if (page === undefined) return html`<${NamespacePage} key=${key} namespace=${namespace} />`;
  const Page = pages[page];
  const isNamed = name !== undefined || page.startsWith("new-");
  return Page && isNamed ? html`<${Page} key=${key} namespace=${namespace} name=${name} />`
    : html`<${Empty} title="There is no such page" />`;
}
