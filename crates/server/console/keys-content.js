// The content of a value as a person edits it: bytes to the text of an editor and back, in the modes text,
// JSON and hex. It owns the rule that an editor never changes bytes that were not edited.
import { bytesToHex, decodeText, encodeText, hexToBytes } from "./lib-bytes.js";
import { formatJson, jsonProblem } from "./lib-json.js";

export const SHOWN_BYTES_MAX = 64 * 1024;
export const MODES = [["text", "Text"], ["json", "JSON"], ["hex", "Hex"]];

/** Control characters except tab and line feed, and characters that hide or reorder text. */
const UNSEEN = new RegExp(
  "[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u00ad\\u061c"
    + "\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\ufeff]",
  "gu",
);

/** Why a value cannot be edited as text, as a sentence; null if it can. */
export function textObstacle(bytes) {
  const text = decodeText(bytes);
  if (text === null) return "The value is not UTF-8 text. It is shown as hexadecimal bytes.";
  const withoutPairs = text.replaceAll("\r\n", "");
  const isMixed = withoutPairs.includes("\r") || (text.includes("\r\n") && withoutPairs.includes("\n"));
  return isMixed ? "The value mixes line ends, which a text field would change. Edit it as bytes." : null;
}

export const usesCrLf = (bytes) => decodeText(bytes)?.includes("\r\n") ?? false;

/** The mode in which a value opens. */
export function defaultMode(bytes) {
  if (textObstacle(bytes)) return "hex";
  const text = decodeText(bytes);
  return /^\s*[{[]/.test(text) && jsonProblem(text) === null ? "json" : "text";
}

/** Why a mode cannot show these bytes; null if it can. */
export function modeObstacle(bytes, mode) {
  if (mode === "hex") return null;
  const obstacle = textObstacle(bytes);
  if (obstacle || mode === "text") return obstacle;
  const problem = jsonProblem(decodeText(bytes));
  return problem === null ? null : `The value is not JSON: ${problem}`;
}

/** What the editor shows of bytes in a mode. */
export function editorText(bytes, mode) {
  if (mode === "hex") return bytesToHex(bytes);
  const text = decodeText(bytes).replaceAll("\r\n", "\n");
  return mode === "json" ? formatJson(text) : text;
}

/**
 * The bytes that the text of an editor stands for; throws an Error for people. A text that was not edited
 * stands for the bytes of `base`, whatever their line ends and white space are.
 */
export function contentBytes({ mode, text }, base) {
  if (modeObstacle(base, mode) === null && text === editorText(base, mode)) return base;
  if (mode === "hex") return hexToBytes(text);
  const problem = mode === "json" ? jsonProblem(text) : null;
  if (problem) throw new Error(`This is not JSON: ${problem} Choose Text to save it as it is.`);
  return encodeText(usesCrLf(base) ? text.replaceAll("\n", "\r\n") : text);
}

/** The characters of a text that cannot be seen, as `U+202E` with their number, in order of appearance. */
export function unseenCharacters(text) {
  const found = new Map();
  for (const [char] of text.matchAll(UNSEEN)) {
    const name = `U+${char.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
    found.set(name, (found.get(name) ?? 0) + 1);
  }
  return [...found];
}
