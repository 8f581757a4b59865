// Who uses the console, and what the grants allow. It owns the session; the server decides every request.
import { signal } from "@preact/signals";

/** `null`: unknown yet; `{ signedOut: true }`: a token is needed; else the answer of whoami. */
export const session = signal(null);

/** Set when a request found that the session has ended, while the page keeps its input. */
export const sessionExpired = signal(false);

const levels = ["cluster:read", "cluster:operate", "cluster:admin"];

function unescape(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function namespaceCovered(granted, wanted) {
  if (granted.endsWith("*")) return wanted.replace(/\*$/, "").startsWith(unescape(granted.slice(0, -1)));
  return unescape(granted) === wanted;
}

function covers(grant, verb, scope) {
  const [grantedVerb, resource = ""] = grant.split(/ (.*)/s);
  if (grantedVerb !== verb) return false;
  const [kind, name] = scope.split(/:(.*)/s);
  const [grantedKind, grantedName = ""] = resource.split(/:(.*)/s);
  if (grantedKind !== kind) return false;
  return kind === "keys" ? name.startsWith(unescape(grantedName)) : namespaceCovered(grantedName, name);
}

/**
 * Whether the grants allow something: `may("write", "keys:app/")`, `may("read", "config:web")`,
 * `may("cluster:operate")`. A prefix of namespaces is written with `*`: `may("read", "config:*")`.
 */
export function may(verb, scope) {
  const who = session.value;
  if (!who || who.signedOut) return false;
  if (!who.required) return true;
  if (scope === undefined) return who.grants.some((grant) => levels.indexOf(grant) >= levels.indexOf(verb));
  return who.grants.some((grant) => covers(grant, verb, scope));
}

/** Whether any grant of this verb exists for `keys` or `config`. */
export function mayAny(verb, kind) {
  const who = session.value;
  if (!who || who.signedOut) return false;
  return !who.required || who.grants.some((grant) => grant.startsWith(`${verb} ${kind}:`));
}
