// Dialogs, by the native element: it keeps the focus inside and closes with Escape.
import { html, useEffect, useId, useRef, useState } from "./lib-html.js";
import { useAction } from "./lib-load.js";
import { Button, ErrorNotice, TextField } from "./lib-ui.js";
import { Text } from "./lib-text.js";

/**
 * A modal dialog, open as long as it is rendered. `onClose` is called for Escape and the button of the head.
 */
export function Dialog({ title, onClose, wide = false, children }) {
  const element = useRef(null);
  const id = useId();
  useEffect(() => {
    const opener = document.activeElement;
    element.current.showModal();
    return () => opener?.focus?.();
  }, []);
  const onCancel = (event) => {
    event.preventDefault();
    onClose?.();
  };
  return html`<dialog ref=${element} class=${wide ? "dialog dialog-wide" : "dialog"} aria-labelledby=${id}
    onCancel=${onCancel}>
    <div class="dialog-head"><h2 id=${id}>${title}</h2>
      ${onClose && html`<button type="button" class="icon-button" aria-label="Close"
        onClick=${onClose}>✕</button>`}
    </div>
    <div class="dialog-body">${children}</div>
  </dialog>`;
}

/** A form in a dialog. `onSubmit` may return a promise; its error is shown and the input stays. */
export function FormDialog({ title, onClose, onSubmit, submit, danger = false, disabled = false, wide,
  children }) {
  const action = useAction(onSubmit);
  const submitForm = async (event) => {
    event.preventDefault();
    if (!disabled && !action.busy) await action.run();
  };
  return html`<${Dialog} title=${title} onClose=${onClose} wide=${wide}>
    <form onSubmit=${submitForm} class="stack">
      ${children}
      <${ErrorNotice} error=${action.error} />
      <div class="dialog-actions">
        <${Button} onClick=${onClose}>Cancel<//>
        <${Button} type="submit" kind=${danger ? "danger" : "primary"} busy=${action.busy}
          disabled=${disabled}>${submit}<//>
      </div>
    </form>
  <//>`;
}

/** Confirms a destructive action: enabled once `name` is typed. `run` may return a promise. */
export function ConfirmByName({ title, name, noun, submit, run, onClose, children }) {
  const [typed, setTyped] = useState("");
  return html`<${FormDialog} title=${title} onClose=${onClose} onSubmit=${run} submit=${submit} danger
    disabled=${typed !== name}>
    ${children}
    <p>To confirm, type the name of the ${noun}: <strong><${Text} value=${name} inline mono /></strong></p>
    <${TextField} label=${`Name of the ${noun}`} value=${typed} onInput=${setTyped} mono />
  <//>`;
}
