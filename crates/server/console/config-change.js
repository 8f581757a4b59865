// The review of a change before it happens: what it does to documents, why, and whether it is published or
// added to a draft. It owns the condition on the revision: only what was shown is made.
import { html, useState } from "./lib-html.js";
import { get } from "./lib-api.js";
import { useAction, useLoad } from "./lib-load.js";
import { navigate } from "./lib-router.js";
import { Dialog } from "./lib-dialog.js";
import { Button, ErrorNotice, Loading, Notice, SelectField, TextField, toast } from "./lib-ui.js";
import { Text } from "./lib-text.js";
import { EffectView } from "./config-diff.js";
import {
  CODES, author, configLink, currentDraft, dryRun, namespacePath, needsAuthor, rememberAuthor, sendChange,
} from "./config-api.js";

const PUBLISH = "publish";
const NEW_DRAFT = "new draft";

/** Fields that every change has: why, and who if no principal is proved. */
export function ReasonFields({ author: name, setAuthor, message, setMessage }) {
  return html`<div class="row-end">
    <div class="grow"><${TextField} label="Message: why" value=${message} onInput=${setMessage}
      maxlength="1024" /></div>
    ${needsAuthor() && html`<div class="author-field">
      <${TextField} label="Your name" value=${name} onInput=${setAuthor} maxlength="128" /></div>`}
  </div>`;
}

/** State of these fields; `terms()` are the parameters of a request. All forms of a page share the name. */
export function useReason() {
  const [message, setMessage] = useState("");
  const terms = () => ({ author: needsAuthor() ? author.value : undefined, message });
  return { fields: { author: author.value, setAuthor: rememberAuthor, message, setMessage }, terms };
}

const canDraft = (change) => change.draftable !== false;

function TargetFields({ target, setTarget, name, setName, drafts, isProtected, change }) {
  if (!canDraft(change)) return null;
  const options = [
    ...(isProtected ? [] : [{ value: PUBLISH, label: "Publish now" }]),
    ...drafts.map((draft) => ({ value: `draft ${draft.name}`, label: `Add to the draft ${draft.name}` })),
    { value: NEW_DRAFT, label: "Add to a new draft" },
  ];
  return html`<div class="row-end"><div class="grow">
    <${SelectField} label="What happens" value=${target} onChange=${setTarget} options=${options} /></div>
    ${target === NEW_DRAFT && html`<div class="grow">
      <${TextField} label="Name of the draft" value=${name} onInput=${setName} maxlength="128" required />
      </div>`}</div>`;
}

async function loadReview(namespace, change, signal) {
  const root = namespacePath(namespace);
  const [{ protected: isProtected }, drafts] = change.creates
    ? [{ protected: false }, []]
    : await Promise.all([get(`${root}/inheritance`, {}, { signal }), get(`${root}/drafts`, {}, { signal })]);
  if (isProtected && canDraft(change)) return { isProtected, drafts };
  // A change that is refused now may still be right in a draft, together with the other changes there.
  const asked = await dryRun(change, signal).then((effect) => ({ effect }),
    (effectError) => ({ effectError }));
  return { isProtected, drafts, ...asked };
}

/**
 * Sends the change for the revision that was shown. If the namespace has moved on, its effect is shown again.
 */
function useSending({ change, review, reason, onDone, onConflict }) {
  const [hasMoved, setMoved] = useState(false);
  const action = useAction(async (draft) => {
    const shown = review.data.effect?.revision;
    const expected = draft ? undefined : hasMoved ? shown : change.expected ?? shown;
    try {
      const done = await sendChange(change, { ...reason.terms(), draft, expected });
      toast(draft ? `Added to the draft ${draft}.` : done.changed ? `Published as revision ${done.revision}.`
        : "Nothing changed.");
      await onDone({ ...done, draft });
    } catch (error) {
      if (error.code !== CODES.conflict) throw error;
      if (onConflict && await onConflict()) return;
      await review.reload();
      setMoved(true);
    }
  });
  return { hasMoved, action };
}

/**
 * `change`: `{ method, address, body, query, expected, draftable, creates }`. `onConflict` may resolve to
 * true if it takes over. `onDone({ revision, changed, draft })`.
 */
export function ChangeDialog({ namespace, title, change, onClose, onDone, onConflict, children,
  danger = false, ready = true }) {
  const review = useLoad((signal) => loadReview(namespace, change, signal), [namespace, change]);
  const [chosen, setChosen] = useState(canDraft(change) && currentDraft() ? `draft ${currentDraft()}`
    : PUBLISH);
  const [name, setName] = useState("");
  const reason = useReason();
  const { hasMoved, action } = useSending({ change, review, reason, onDone, onConflict });
  const mustDraft = review.data?.isProtected && canDraft(change);
  const target = mustDraft && chosen === PUBLISH ? NEW_DRAFT : chosen;
  const draft = target === PUBLISH ? undefined : target === NEW_DRAFT ? name.trim()
    : target.slice("draft ".length);
  const isReady = ready && review.data && draft !== "" &&
    (draft !== undefined || review.data.effect?.changed);
  const submit = (event) => {
    event.preventDefault();
    if (isReady && !action.busy) action.run(draft);
  };
  return html`<${Dialog} title=${title} onClose=${onClose} wide>
    <form class="stack" onSubmit=${submit}>
      ${children}
      ${hasMoved && html`<${Notice} kind="warn"
        title="The namespace was changed meanwhile">This is what the change does now. Nothing was made
        yet.<//>`}
      ${review.error && html`<${ErrorNotice} error=${review.error} />`}
      ${!review.data && !review.error && html`<${Loading} label="Asking the server what would change…" />`}
      ${review.data?.effect && html`<div class="review-effect"><${EffectView} effect=${review.data.effect} />
        </div>`}
      ${mustDraft && html`<${Notice} title="This namespace is protected">The change goes to a draft. The draft
        shows its effect, and is published once it is approved.<//>`}
      ${review.data?.effectError && html`<${ErrorNotice} error=${review.data.effectError} />`}
      ${review.data && html`<${TargetFields} ...${{ target, setTarget: setChosen, name, setName, change }}
        drafts=${review.data.drafts} isProtected=${review.data.isProtected} />`}
      <${ReasonFields} ...${reason.fields} />
      <${ErrorNotice} error=${action.error} />
      <div class="dialog-actions"><${Button} onClick=${onClose}>Cancel<//>
        <${Button} type="submit" kind=${danger ? "danger" : "primary"} busy=${action.busy}
          disabled=${!isReady}>
          ${draft === undefined ? "Publish" : "Add to the draft"}<//></div>
    </form><//>`;
}

/** Where to go after a change: to its draft, or to `link`. */
export function goAfter(namespace, done, link) {
  navigate(done.draft ? configLink(namespace, ["draft", done.draft], { draft: undefined }) : link);
}

/** Says that changes of this page go to a draft. */
export function DraftBanner({ namespace }) {
  const draft = currentDraft();
  if (!draft) return null;
  return html`<${Notice} kind="warn" actions=${html`<a
    href=${configLink(namespace, ["draft", draft], { draft: undefined })}>Open the draft</a>
    <a href=${configLink(namespace, [], { draft: undefined })}>Leave it</a>`}>You are editing the
      draft <strong><${Text} value=${draft} inline /></strong>. Pages show the published configuration.<//>`;
}
