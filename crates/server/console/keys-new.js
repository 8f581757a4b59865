// Creating a key: only if there is none of this name. The draft outlives a visit to another screen.
import { html, useEffect, useState } from "./lib-html.js";
import { useAction } from "./lib-load.js";
import { may } from "./lib-access.js";
import { Button, ErrorNotice, Notice, TextField, toast } from "./lib-ui.js";
import { encodeText, hasPath } from "./lib-bytes.js";
import { isConflict, saveValue } from "./keys-api.js";
import { draftOf, dropDraft, keepDraft } from "./keys-drafts.js";
import { Expiry, expiryOptions } from "./keys-expiry.js";

const DRAFT_ID = "new";
const KEY_BYTES_MAX = 4096;

/** Why a name cannot be used; an empty text if it can. */
function nameProblem(name, prefix) {
  if (name === "" || name === prefix) return "";
  if (!hasPath({ text: name })) return "Browsers remove “.” and “..” from addresses: choose another name.";
  if (encodeText(name).length > KEY_BYTES_MAX) return "A key has at most 4,096 bytes.";
  return may("write", `keys:${name}`) ? "" : "Your grants do not allow to write this key.";
}

export function NewKey({ prefix, onClose, onCreated, linkTo }) {
  const start = { name: prefix.text ?? "", value: "", expiry: { choice: "never", after: "" } };
  const [draft, setDraft] = useState(() => draftOf(DRAFT_ID) ?? start);
  const [existing, setExisting] = useState(null);
  const isEdited = draft.name !== start.name || draft.value !== "";
  useEffect(() => {
    if (isEdited) keepDraft(DRAFT_ID, draft);
    else dropDraft(DRAFT_ID);
  }, [draft, isEdited]);
  const create = useAction(async () => {
    const key = { text: draft.name };
    setExisting(null);
    try {
      await saveValue(key, encodeText(draft.value), { version: "0", ...expiryOptions(draft.expiry, null) });
      dropDraft(DRAFT_ID);
      toast(`Created ${draft.name}`);
      onCreated(key);
    } catch (error) {
      if (!isConflict(error)) throw error;
      setExisting(key);
    }
  });
  const problem = nameProblem(draft.name, prefix.text);
  const submit = (event) => {
    event.preventDefault();
    create.run();
  };
  return html`<section class="keys-detail" aria-labelledby="new-key-title">
    <form class="stack" onSubmit=${submit}>
      <div class="section-head"><h2 id="new-key-title">New key</h2><${Button} kind="quiet"
        onClick=${onClose}>Close<//></div>
      <${TextField} label="Key" value=${draft.name} mono required error=${problem} maxlength=${KEY_BYTES_MAX}
        onInput=${(name) => setDraft({ ...draft, name })} />
      <${TextField} label="Value" value=${draft.value} rows=${10} mono onInput=${(value) =>
        setDraft({ ...draft, value })} />
      <${Expiry} expiry=${draft.expiry} onChange=${(expiry) => setDraft({ ...draft, expiry })} />
      ${existing && html`<${Notice} kind="error" title="The key exists already"
        actions=${html`<a href=${linkTo(existing)}>Open it</a>`}>Nothing was changed. Your input stays
          here.<//>`}
      <${ErrorNotice} error=${create.error} />
      <div class="row"><${Button} type="submit" kind="primary" busy=${create.busy}
        disabled=${draft.name === "" || problem !== ""}>Create<//></div>
    </form>
  </section>`;
}
