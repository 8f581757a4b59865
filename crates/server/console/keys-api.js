// Requests of the Keys screen: pages of keys and folders, one value with its version and expiry, and
// conditional writes. It owns no state.
import { ApiError, get, send } from "./lib-api.js";
import { bytesField, decodeText, keyBytes, keyPath, setBytesParameter } from "./lib-bytes.js";
import { SHOWN_BYTES_MAX } from "./keys-content.js";

const PAGE_ITEMS = 1000;

function compareBytes(a, b) {
  const length = Math.min(a.length, b.length);
  for (let at = 0; at < length; at += 1) if (a[at] !== b[at]) return a[at] - b[at];
  return a.length - b.length;
}

/** Loads a page behind `after`: { rows, next }. A row is a folder or a key; `next` is null at the end. */
export async function loadPage({ prefix, delimiter, after }, signal) {
  const parameters = new URLSearchParams({ keys: "true", limit: PAGE_ITEMS });
  setBytesParameter(parameters, "prefix", prefix);
  if (delimiter) parameters.set("delimiter", delimiter);
  if (after) setBytesParameter(parameters, "after", after);
  const page = await get(`/v1/keys?${parameters}`, {}, { signal });
  const folders = (page.folders ?? []).map((folder) => ({ ...folder, folder: bytesField(folder, "prefix") }));
  const keys = page.items.map((item) => ({ ...item, key: bytesField(item, "key") }));
  const sorted = [...folders, ...keys]
    .map((row) => [keyBytes(row.folder ?? row.key), row])
    .sort(([a], [b]) => compareBytes(a, b));
  return { rows: sorted.map(([, row]) => row), next: bytesField(page, "next") };
}

const keyAddress = (key) => `/v1/keys/${keyPath(key)}`;

function factsOf(response) {
  const ttl = response.headers.get("tidelock-ttl-ms");
  return {
    version: response.headers.get("etag")?.replaceAll('"', "") ?? null,
    ttlMs: ttl === null ? null : Number(ttl),
    lease: response.headers.get("tidelock-lease"),
    loadedAtMs: Date.now(),
  };
}

/** Loads a value: { bytes, size, version, ttlMs, lease }. `bytes` is null if it is large, unless `all`. */
export async function loadValue(key, all, signal) {
  const response = await send("GET", keyAddress(key), { signal });
  const size = Number(response.headers.get("content-length"));
  if (size > SHOWN_BYTES_MAX && !all) {
    await response.body.cancel();
    return { ...factsOf(response), size, bytes: null };
  }
  const bytes = new Uint8Array(await response.arrayBuffer());
  return { ...factsOf(response), size: bytes.length, bytes };
}

/** Loads a value, or null if there is no such key. */
export async function loadCurrent(key) {
  try {
    return await loadValue(key, true);
  } catch (error) {
    if (error.status === 404) return null;
    throw error;
  }
}

/** Saves if the version is still `version`; "0": only if there is no such key. Returns the new version. */
export async function saveValue(key, bytes, { version, ttl, lease }) {
  const condition = version === "0" ? { "if-none-match": "*" } : { "if-match": `"${version}"` };
  const response = await send("PUT", keyAddress(key), {
    query: { ttl, lease },
    body: new Blob([bytes]),
    headers: condition,
  });
  return factsOf(response);
}

export const deleteKey = (key, version) =>
  send("DELETE", keyAddress(key), { headers: { "if-match": `"${version}"` } });

export const isConflict = (error) => error instanceof ApiError && error.status === 412;

/** The part of a key behind a prefix, as a key of the same form. */
export function behindPrefix(key, prefix) {
  if (key.b64 === undefined && prefix.b64 === undefined) return { text: key.text.slice(prefix.text.length) };
  const rest = keyBytes(key).slice(keyBytes(prefix).length);
  const text = decodeText(rest);
  return text === null ? { b64: key.b64 } : { text };
}

/** The prefixes from all keys down to `prefix`, each one delimiter deeper: [{ name, prefix }]. */
export function prefixSteps(prefix, delimiter) {
  if (prefix.b64 !== undefined || prefix.text === "") return [];
  if (!delimiter) return [{ name: prefix.text, prefix }];
  const steps = [];
  let from = 0;
  while (from < prefix.text.length) {
    const at = prefix.text.indexOf(delimiter, from);
    const to = at < 0 ? prefix.text.length : at + delimiter.length;
    steps.push({ name: prefix.text.slice(from, to), prefix: { text: prefix.text.slice(0, to) } });
    from = to;
  }
  return steps;
}
