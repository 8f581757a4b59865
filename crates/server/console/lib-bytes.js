// Keys and values are bytes. This module converts them between bytes, text, base64, hexadecimal and the paths
// and query parameters of the API. It knows nothing of the screen.

const ENCODER = new TextEncoder();
const BASE64_CHUNK_BYTES = 0x8000;

/** Encodes a text as UTF-8. */
export const encodeText = (text) => ENCODER.encode(text);

/** Decodes UTF-8; null if the bytes are not UTF-8. A byte order mark is kept. */
export function decodeText(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return null;
  }
}

export function bytesToBase64(bytes) {
  let binary = "";
  for (let at = 0; at < bytes.length; at += BASE64_CHUNK_BYTES) {
    binary += String.fromCharCode(...bytes.subarray(at, at + BASE64_CHUNK_BYTES));
  }
  return btoa(binary);
}

/** Decodes base64 of the standard or the URL alphabet; throws if it is neither. */
export function base64ToBytes(base64) {
  const binary = atob(base64.replaceAll("-", "+").replaceAll("_", "/"));
  return Uint8Array.from(binary, (char) => char.charCodeAt(0));
}

export const equalBytes = (a, b) => a.length === b.length && a.every((byte, at) => byte === b[at]);

/** Writes bytes as pairs of hexadecimal digits, 16 bytes a line, with a gap after eight. */
export function bytesToHex(bytes) {
  const lines = [];
  for (let at = 0; at < bytes.length; at += 16) {
    const pairs = Array.from(bytes.subarray(at, at + 16), (byte) => byte.toString(16).padStart(2, "0"));
    lines.push([pairs.slice(0, 8).join(" "), pairs.slice(8).join(" ")].filter(Boolean).join("  "));
  }
  return lines.join("\n");
}

/** Reads hexadecimal digits with any white space between bytes; throws an Error for people. */
export function hexToBytes(text) {
  const wrong = /[^0-9a-fA-F\s]/.exec(text);
  if (wrong) throw new Error(`"${wrong[0]}" at position ${wrong.index + 1} is not a hexadecimal digit.`);
  const digits = text.replace(/\s+/g, "");
  if (digits.length % 2) throw new Error("The number of hexadecimal digits is odd: each byte has two.");
  return Uint8Array.from(digits.match(/../g) ?? [], (pair) => parseInt(pair, 16));
}

/** Takes `name` or `name_b64` of an API object: { text, b64 }, of which one is set; else null. */
export function bytesField(object, name) {
  if (typeof object?.[name] === "string") return { text: object[name] };
  if (typeof object?.[`${name}_b64`] === "string") return { b64: object[`${name}_b64`] };
  return null;
}

/** A unique text for a key of the form { text } or { b64 }. */
export const keyId = (key) => (key.b64 === undefined ? `t:${key.text}` : `b:${key.b64}`);

export const sameKey = (a, b) => Boolean(a && b) && keyId(a) === keyId(b);

export const keyBytes = (key) => (key.b64 === undefined ? encodeText(key.text) : base64ToBytes(key.b64));

/** A key as a text for names of files, titles and announcements. */
export const keyLabel = (key) => key.text ?? `base64:${key.b64}`;

/** Sets `name` or `name_b64` in URL parameters. */
export function setBytesParameter(parameters, name, key) {
  parameters.set(key.b64 === undefined ? name : `${name}_b64`, key.text ?? key.b64);
}

/** Percent-encodes a key as the last part of a path. */
export function keyPath(key) {
  if (key.b64 === undefined) return encodeURIComponent(key.text);
  return Array.from(keyBytes(key), (byte) => `%${byte.toString(16).padStart(2, "0").toUpperCase()}`).join("");
}

/** Browsers remove path segments of one or two dots, also escaped ones: such keys have no path. */
export const hasPath = (key) => key.text !== "." && key.text !== ".." && key.text !== "";
