// Reads grants (docs/reference/permissions.md) and answers the two questions of the Access screen: what a
// principal may do, and which principals may do a given thing. It mirrors the rules of the server for display
// only: the server decides each request.

const CLUSTER_LEVELS = ["read", "operate", "admin"];

/** Parses `read keys:app/`, `write config:web*` or `cluster:read`; null if it is none of these. */
export function parseGrant(text) {
  const cluster = /^cluster:(read|operate|admin)$/.exec(text);
  if (cluster) return { domain: "cluster", level: cluster[1] };
  const data = /^(read|write|watch|reveal) (keys|config):(.*)$/s.exec(text);
  return data && { domain: data[2], verb: data[1], pattern: data[3] };
}

/** Whether a grant's pattern covers one key or namespace (`exact`), or all that begin so. */
function covers(grant, name, exact) {
  if (grant.domain === "keys") return name.startsWith(unescapeName(grant.pattern));
  if (!grant.pattern.endsWith("*")) return exact && unescapeName(grant.pattern) === name;
  return name.startsWith(unescapeName(grant.pattern.slice(0, -1)));
}

function unescapeName(pattern) {
  try {
    return decodeURIComponent(pattern);
  } catch {
    return pattern;
  }
}

/**
 * Returns the first grant of `grants` that allows `question`, else null. A question is { domain: "keys" |
 * "config", verb, name, exact } or { domain: "cluster", level }.
 */
export function grantFor(grants, question) {
  return grants.find((text) => {
    const grant = parseGrant(text);
    if (grant?.domain !== question.domain) return false;
    if (grant.domain === "cluster") {
      return CLUSTER_LEVELS.indexOf(grant.level) >= CLUSTER_LEVELS.indexOf(question.level);
    }
    return grant.verb === question.verb && covers(grant, question.name, question.exact);
  }) ?? null;
}

/** Whether a grant has an effect only beside `read` of the same names (`watch` and `reveal`). */
export const needsRead = (verb) => verb === "watch" || verb === "reveal";

/**
 * Who may do what `question` asks: one entry for each principal, with the role and the grant that allow it.
 * Roles that have ended allow nothing.
 */
export function principalsWho(question, principals, roles, nowMs) {
  return principals.flatMap((principal) => {
    const allowing = allowingRole(question, activeRoles(principal, roles, nowMs));
    return allowing ? [{ principal: principal.name, ...allowing }] : [];
  });
}

/** The roles of a principal that exist and have not ended. */
export function activeRoles(principal, roles, nowMs) {
  return roles.filter((role) =>
    principal.roles.includes(role.name) && !(role.ends_unix_ms !== undefined && role.ends_unix_ms <= nowMs));
}

function allowingRole(question, roles) {
  if (needsRead(question.verb)) {
    const read = allowingRole({ ...question, verb: "read" }, roles);
    if (!read) return null;
  }
  for (const role of roles) {
    const grant = grantFor(role.grants, question);
    if (grant !== null) return { role: role.name, grant };
  }
  return null;
}

/** Says what a grant allows, in a sentence for people. */
export function grantSentence(text) {
  const grant = parseGrant(text);
  if (!grant) return text;
  if (grant.domain === "cluster") {
    return {
      read: "see hosts, shards, replicas, metrics and the state of nodes",
      operate: "change members, shards, placement, slots and leaders, and see the cluster",
      admin: "save and restore backups, remove all keys and change permissions, and operate the cluster",
    }[grant.level];
  }
  const verb = { read: "read", write: "change", watch: "watch", reveal: "see secrets of" }[grant.verb];
  if (grant.domain === "keys") {
    return grant.pattern === "" ? `${verb} all keys` : `${verb} keys that begin with “${grant.pattern}”`;
  }
  if (grant.pattern === "*") return `${verb} all configuration namespaces`;
  return grant.pattern.endsWith("*")
    ? `${verb} configuration namespaces that begin with “${grant.pattern.slice(0, -1)}”`
    : `${verb} the configuration namespace “${grant.pattern}”`;
}
