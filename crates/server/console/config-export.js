// Downloading a namespace or the document of a container as a file.
import { html, useState } from "./lib-html.js";
import { withQuery } from "./lib-api.js";
import { Dialog } from "./lib-dialog.js";
import { Button, LinkButton, SelectField } from "./lib-ui.js";
import { namespacePath } from "./config-api.js";

export function ExportDialog({ namespace, onClose }) {
  const [format, setFormat] = useState("json");
  const address = withQuery(`${namespacePath(namespace)}/export`, { format });
  return html`<${Dialog} title="Export the namespace" onClose=${onClose}>
    <p class="muted">One file with all pairs, containers and schemas. Secrets are masked in it. It can be
      imported again.</p>
    <${SelectField} label="Format" value=${format} options=${["json", "yaml", "toml"]} onChange=${setFormat}
      />
    <div class="dialog-actions"><${Button} onClick=${onClose}>Close<//>
      <${LinkButton} kind="primary" href=${address} download=${`${namespace}.${format}`}>Download<//></div>
        <//>`;
}
