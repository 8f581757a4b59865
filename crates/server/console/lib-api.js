// Requests to the node that serves the page. It owns the reading of answers, of both forms of errors, and of
// numbers that JavaScript would round. It does not show anything.
import { sessionExpired, session } from "./lib-access.js";
import { encode } from "./lib-router.js";

/** A refused or failed request. `status` 0 means that no answer arrived. */
export class ApiError extends Error {
  constructor({ title, detail = "", status, code = "", body = null }) {
    super(title);
    Object.assign(this, { name: "ApiError", title, detail, status, code, body });
  }
}

/** Percent-encodes the names in a path: path`/api/namespaces/${name}`. */
export function path(texts, ...names) {
  return texts.map((text, i) => text + (i < names.length ? encode(names[i]) : "")).join("");
}

/** Adds the parameters that are given to a path. */
export function withQuery(address, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null &&
    value !== "");
  if (given.length === 0) return address;
  return `${address}?${given.map(([name, value]) => `${encode(name)}=${encode(value)}`).join("&")}`;
}

// A number keeps its digits: 64-bit integers and `1.0` would otherwise change when they are sent back.
const keepDigits = (_, value, context) =>
  typeof value === "number" && String(value) !== context?.source && JSON.rawJSON
    ? JSON.rawJSON(context.source)
    : value;

/** Parses JSON without rounding: a number that JavaScript would show differently becomes `JSON.rawJSON`. */
export const parseJson = (text) => JSON.parse(text, keepDigits);

function problemOf(status, statusText, text) {
  try {
    const body = JSON.parse(text);
    if (body?.title) {
      const code = String(body.type ?? "").split("/").pop();
      return new ApiError({ title: body.title, detail: body.detail, status, code, body });
    }
    if (body?.errmsg) {
      return new ApiError({ title: statusText || `HTTP ${status}`, detail: body.errmsg, status,
        code: body.errcode, body });
    }
  } catch {
    // Not JSON: a proxy answered.
  }
  return new ApiError({ title: `HTTP ${status} ${statusText}`.trim(), detail: text.slice(0, 500), status });
}

/** Sends a request and returns the response, or throws an `ApiError`. */
export async function send(method, address, { query, body, headers = {}, signal } = {}) {
  const isJson = body !== undefined && typeof body !== "string" && !(body instanceof Blob);
  let response;
  try {
    response = await fetch(withQuery(address, query), {
      method,
      signal,
      credentials: "same-origin",
      headers: isJson ? { "content-type": "application/json", ...headers } : headers,
      body: isJson ? JSON.stringify(body) : body,
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    const detail = "The node did not answer. It may be stopped, or the network is down.";
    throw new ApiError({ title: "No answer", detail, status: 0 });
  }
  if (response.ok) return response;
  if (response.status === 401 && session.value && !session.value.signedOut) sessionExpired.value = true;
  throw problemOf(response.status, response.statusText, await response.text().catch(() => ""));
}

/** Sends a request and returns the parsed answer; under `/api` the `data` of the envelope. */
export async function request(method, address, options) {
  const response = await send(method, address, options);
  const text = await response.text();
  if (text === "") return null;
  const answer = parseJson(text);
  return address.startsWith("/api") && answer !== null && "errcode" in answer ? answer.data : answer;
}

export const get = (address, query, options) => request("GET", address, { query, ...options });
export const post = (address, body, options) => request("POST", address, { body, ...options });
export const put = (address, body, options) => request("PUT", address, { body, ...options });
export const del = (address, options) => request("DELETE", address, options);
