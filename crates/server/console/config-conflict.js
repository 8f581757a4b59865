// A conflict: what the edit began from, what is there now, and the edit. It loses nothing and decides
// nothing.
import { html, useState } from "./lib-html.js";
import { Dialog } from "./lib-dialog.js";
import { DiffView } from "./config-diff.js";
import { Button, Notice, TextField } from "./lib-ui.js";
import { Text } from "./lib-text.js";

const Column = ({ title, hint, children }) =>
  html`<section class="config-version-column"><h3>${title}</h3><p class="hint">${hint}</p>${children}
  </section>`;

const ReadOnly = ({ value, label }) => html`<div class="config-version" role="region" aria-label=${label}
  tabindex="0"><${Text} value=${value} mono max=${20_000} /></div>`;

/** `onResolve(text)` continues with this text on top of theirs. */
export function ConflictDialog({ base, theirs, yours, who, onResolve, onClose }) {
  const [text, setText] = useState(yours);
  return html`<${Dialog} title="Somebody else has changed it" wide onClose=${onClose}>
    <${Notice} kind="warn" title="Nothing was saved, and nothing is lost">
      ${who ?? "It was changed after you began to edit."} Decide what it should be, then review again.<//>
    <div class="config-versions">
      <${Column} title="Base" hint="What you began from."><${ReadOnly} value=${base} label="Base" /><//>
      <${Column} title="Theirs" hint="What is published now."><${ReadOnly} value=${theirs} label="Theirs" />
        <//>
      <${Column} title="Yours" hint="What you want. You can edit it.">
        <${TextField} label="Yours" hideLabel value=${text} onInput=${setText} rows="12" mono /><//>
    </div>
    <h3>Theirs, compared with yours</h3>
    <${DiffView} label="Difference of theirs and yours" before=${theirs} after=${text} />
    <div class="dialog-actions"><${Button} onClick=${onClose}>Keep editing<//>
      <${Button} onClick=${() => setText(theirs)}>Take theirs<//>
      <${Button} onClick=${() => setText(yours)}>Take mine<//>
      <${Button} kind="primary" onClick=${() => onResolve(text)}>Continue with this<//></div>
  <//>`;
}
