// Text from the server, times and amounts. Text is isolated, so that its direction does not change what
// stands beside it, and its control characters are shown.
import { html, useState } from "./lib-html.js";

// Control characters, and characters that are invisible or reorder text.
const INVISIBLE =
  /([\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff])/;
const SHOWN_MAX = 2_000;

const codePoint = (character) => `U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;

function withVisible(text, isInline) {
  const shown = isInline ? text.replace(/\r\n|\n/g, "↵").replace(/\t/g, "⇥") : text;
  if (!INVISIBLE.test(shown)) return shown;
  return shown.split(INVISIBLE).map((part, i) =>
    i % 2 === 1 ? html`<span class="control-character" title="control character">${codePoint(part)}</span>`
      : part);
}

/** Text from the server. Long text is cut, and shown on request unless `inline`: one line, as in a table. */
export function Text({ value, inline = false, mono = false, max = SHOWN_MAX }) {
  const [all, setAll] = useState(false);
  const text = String(value ?? "");
  const isCut = text.length > max && !all;
  const shown = isCut ? text.slice(0, max).toWellFormed() : text;
  return html`<bdi class="text ${inline ? "text-inline" : "text-block"} ${mono ? "mono" : ""}"
    title=${inline && text.length > 24 ? text.slice(0, 500).replace(/\p{Cf}/gu, "") : undefined}>
      ${withVisible(shown, inline)}${isCut
      ? inline ? "…" : html`… <button type="button" class="link" onClick=${() => setAll(true)}>
          Show all (${bytes(new Blob([text]).size)})</button>`
      : null}</bdi>`;
}

/** A name or key: monospaced, in one line. */
export const Name = ({ value }) => html`<${Text} value=${value} inline mono max=${300} />`;

// Formats are costly to make.
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const oneDigit = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const relative = new Intl.RelativeTimeFormat("en");
const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** `1536` as `1.5 KiB`. */
export function bytes(amount) {
  const power = amount < 1024 ? 0 : Math.min(Math.floor(Math.log2(amount) / 10), units.length - 1);
  const scaled = amount / 1024 ** power;
  return `${(scaled < 10 ? oneDigit : whole).format(scaled)} ${units[power]}`;
}

/** `12345` as `12,345`. */
export const count = (amount) => whole.format(amount);

/** `plural(2, "key")` is `2 keys`. */
export const plural = (amount, noun, many = `${noun}s`) =>
  `${count(amount)} ${Number(amount) === 1 ? noun : many}`;

const steps = [[60, "second", 1], [3600, "minute", 60], [86400, "hour", 3600], [30 * 86400, "day", 86400]];

/** `5 minutes ago`, or `in 3 days`. */
export function relativeTime(unix_ms, now_ms = Date.now()) {
  const seconds = (unix_ms - now_ms) / 1000;
  if (Math.abs(seconds) < 5) return "now";
  const [, unit, divisor] = steps.find(([limit]) => Math.abs(seconds) < limit) ?? [0, "day", 86400];
  return relative.format(Math.round(seconds / divisor), unit);
}

const absolute = new Intl.DateTimeFormat("sv", { dateStyle: "short", timeStyle: "medium" });

/**
 * A point in time, in milliseconds since 1970: relative with the local time as title, or the local time
 * itself.
 */
export function Time({ ms, full = false }) {
  if (ms === undefined || ms === null) return null;
  const date = new Date(ms);
  if (Number.isNaN(date.valueOf())) return html`<span>${ms}</span>`;
  const local = absolute.format(date);
  return html`<time datetime=${date.toISOString()} title=${local}>${full ? local : relativeTime(ms)}</time>`;
}
