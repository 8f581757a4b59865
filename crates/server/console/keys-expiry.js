// When a key expires after it is saved. A save without an expiry removes the present one, so the choice is
// always shown. It owns the translation of that choice into parameters of the request.
import { html } from "./lib-html.js";
import { SelectField, TextField } from "./lib-ui.js";
import { formatDuration, parseDuration } from "./lib-ops.js";

/** The choice that keeps what a key has. */
export function expiryOf({ ttlMs, lease }) {
  if (lease) return { choice: "lease", after: "" };
  return { choice: ttlMs === null ? "never" : "keep", after: "" };
}

const remainingMs = ({ ttlMs, loadedAtMs }) => Math.max(1, ttlMs - (Date.now() - loadedAtMs));

/** The parameters of a save: { ttl, lease }, and `ttlMs`, the expiry that the key then has. */
export function expiryOptions({ choice, after }, loaded) {
  if (choice === "lease") return { lease: loaded.lease, ttlMs: loaded.ttlMs };
  if (choice === "never") return { ttlMs: null };
  const ttlMs = choice === "keep" ? Math.round(remainingMs(loaded)) : parseDuration(after);
  if (ttlMs === null) throw new Error(AFTER_HINT);
  return { ttl: `${ttlMs}ms`, ttlMs };
}

const AFTER_HINT = "Give a whole number with ms, s, m, h or d, such as 30m.";

export function Expiry({ expiry, loaded, onChange }) {
  const options = [
    { value: "never", label: "never" },
    loaded?.ttlMs != null && !loaded.lease
      && { value: "keep", label: `when it does now (in ${formatDuration(loaded.ttlMs)})` },
    loaded?.lease && { value: "lease", label: `with its lease ${loaded.lease}` },
    { value: "after", label: "after a time from now" },
  ].filter(Boolean);
  const isWrong = expiry.choice === "after" && expiry.after !== "" && parseDuration(expiry.after) === null;
  return html`<div class="row-end">
    <${SelectField} label="Expires" value=${expiry.choice} options=${options}
      onChange=${(choice) => onChange({ ...expiry, choice })} />
    ${expiry.choice === "after" && html`<div class="expiry-after"><${TextField} label="After"
      value=${expiry.after} mono
      placeholder="30m" error=${isWrong ? AFTER_HINT : ""} onInput=${(after) => onChange({ ...expiry,
        after })} /></div>`}
  </div>`;
}
