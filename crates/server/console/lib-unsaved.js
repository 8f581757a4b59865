// Edits that are not saved, by what they belong to. They outlive a change of the route, and the browser asks
// before the page is closed with some of them.
import { signal } from "@preact/signals";

const edits = new Map();
const revision = signal(0);

function onBeforeUnload(event) {
  event.preventDefault();
}

function changed() {
  revision.value += 1;
  if (edits.size > 0) addEventListener("beforeunload", onBeforeUnload);
  else removeEventListener("beforeunload", onBeforeUnload);
}

/** The edit of this id, or undefined. A component that reads it is rendered again when it changes. */
export function unsaved(id) {
  return revision.value >= 0 ? edits.get(id) : undefined;
}

export function keepUnsaved(id, edit) {
  edits.set(id, edit);
  changed();
}

export function discardUnsaved(id) {
  if (edits.delete(id)) changed();
}
