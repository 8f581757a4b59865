// Edits of values that are not saved yet, by key. They outlive a visit to another screen; the browser asks
// before a page with such edits is closed.
const drafts = new Map();

addEventListener("beforeunload", (event) => {
  if (drafts.size > 0) event.preventDefault();
});

export const draftOf = (id) => drafts.get(id);
export const keepDraft = (id, draft) => drafts.set(id, draft);
export const dropDraft = (id) => drafts.delete(id);
