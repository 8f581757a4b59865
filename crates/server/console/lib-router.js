// Hash routes: `#/screen/part/part?name=value`. It owns the signal `route` and every change of the URL.
import { signal } from "@preact/signals";

// A lone surrogate cannot be percent-encoded.
export const encode = (text) => encodeURIComponent(String(text).toWellFormed());

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function parse(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const parts = path.split("/").filter((part) => part !== "").map(decode);
  return { screen: parts[0] ?? "", parts: parts.slice(1),
    params: Object.fromEntries(new URLSearchParams(query)) };
}

export const route = signal(parse(location.hash));
addEventListener("hashchange", () => { route.value = parse(location.hash); });

/** A link to a screen: `href(["config", name], { tab: "pairs" })`. Empty parameters are left out. */
export function href(parts, params = {}) {
  const given = Object.entries(params).filter(([, value]) => value !== undefined && value !== null &&
    value !== "");
  const query = given.map(([name, value]) => `${encode(name)}=${encode(value)}`).join("&");
  return `#/${parts.map(encode).join("/")}${query === "" ? "" : `?${query}`}`;
}

/** Goes to a link. `replace` leaves no entry in the browser's history. */
export function navigate(link, { replace = false } = {}) {
  if (link === location.hash) return;
  if (!replace) {
    location.hash = link;
    return;
  }
  history.replaceState(null, "", link);
  route.value = parse(link);
}

/** Sets parameters of the current route; null removes one. By default back skips this change. */
export function setParams(changes, { replace = true } = {}) {
  const { screen, parts, params } = route.value;
  navigate(href([screen, ...parts], { ...params, ...changes }), { replace });
}

/** The value of a parameter, and a function that sets it. */
export function useParam(name, fallback = "") {
  return [route.value.params[name] ?? fallback, (value, options) => setParams({ [name]: value }, options)];
}
