// What the screens for operators share: the texts of /readyz and /metrics as objects, requests whose answers
// are no JSON of the usual kind, names of hosts and shards, and numbers with units.
import { ApiError, get, send } from "./lib-api.js";

/** Parses `/readyz?verbose`: { ready, checks: [{ name, ok, cause }], warnings: [text] }. */
export function parseReadiness(text) {
  const lines = text.split("\n").filter((line) => line !== "");
  const checks = lines.flatMap((line) => {
    const match = /^\[([+-])\](.*?) (?:ok|failed(?:: (.*))?)$/.exec(line);
    return match ? [{ name: match[2], ok: match[1] === "+", cause: match[3] ?? "" }] : [];
  });
  const warnings = lines.filter((line) => line.startsWith("[!]")).map((line) => line.slice(3));
  return { ready: lines.at(-1) === "ready", checks, warnings };
}

/** Loads `/readyz?verbose`, which answers 503 with a text of the same form when a check fails. */
export async function loadReadiness(signal) {
  let response;
  try {
    response = await fetch("/readyz?verbose", { signal, credentials: "same-origin" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError({ title: "No answer", detail: "The node did not answer.", status: 0 });
  }
  if (response.ok || response.status === 503) return parseReadiness(await response.text());
  throw new ApiError({ title: `HTTP ${response.status}`, detail: response.statusText,
    status: response.status });
}

/** Parses the text format of `/metrics`: a function (name, labels) that gives a number or undefined. */
export function parseMetrics(text) {
  const samples = new Map();
  for (const line of text.split("\n")) {
    const match = /^tidelock_([a-z0-9_]+(?:\{[^}]*\})?) ([-+0-9.eE]+)$/.exec(line);
    if (match) samples.set(match[1], Number(match[2]));
  }
  return (name, labels = "") => samples.get(labels ? `${name}{${labels}}` : name);
}

/** Loads the metrics of the node that serves the page. */
export async function loadMetrics(signal) {
  const response = await send("GET", "/metrics", { headers: { accept: "text/plain" }, signal });
  return parseMetrics(await response.text());
}

/** Loads JSON with plain numbers: for measurements, whose last digits do not matter. */
export async function loadPlainJson(address, signal) {
  return (await send("GET", address, { signal })).json();
}

export const loadCluster = (signal) => get("/v1/cluster", {}, { signal });

/** How many entries each replica has still to apply, by `shard:node`; null if it is not known. */
export function replicaLag(cluster) {
  const newest = new Map();
  for (const { shard, applied } of cluster.replicas) {
    if (applied !== null) newest.set(shard, Math.max(applied, newest.get(shard) ?? 0));
  }
  return new Map(cluster.replicas.map(({ shard, node, applied }) =>
    [`${shard}:${node}`, applied === null ? null : newest.get(shard) - applied]));
}

export const zoneOf = (host) => host.tags["geo:zone"] ?? "";

/** Hosts that are or will be members, in the order of their numbers. */
export const members = (cluster) => cluster.hosts.filter((host) => host.standing !== "removed");

export const shardTitle = (shard) =>
  shard.type === "registry" ? `Shard ${shard.id} (registry)` : `Shard ${shard.id}`;

const TIME_UNITS = [["d", 86_400_000], ["h", 3_600_000], ["m", 60_000], ["s", 1000]];

/** The two largest units of a duration: `3d 4h`, `12m 5s`, `850 ms`. */
export function formatDuration(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const parts = [];
  let rest = ms;
  for (const [unit, size] of TIME_UNITS) {
    const whole = Math.floor(rest / size);
    rest -= whole * size;
    if (whole > 0) parts.push(`${whole}${unit}`);
    else if (parts.length > 0) break;
    if (parts.length === 2) break;
  }
  return parts.join(" ");
}

/** Reads `30s`, `15m`, `2h`, `90d`, `500ms` as milliseconds; null if it is none of these. */
export function parseDuration(text) {
  const match = /^([1-9][0-9]*)(ms|s|m|h|d)$/.exec(text.trim());
  if (!match) return null;
  return Number(match[1]) * { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 }[match[2]];
}

/** Saves a Blob or a text as a file, by the browser's download. */
export function saveFile(name, content, type = "application/octet-stream") {
  const url = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

/** A time as part of a file's name: `2026-11-26-0714`. */
export const fileStamp = (date = new Date()) =>
  date.toISOString().slice(0, 16).replace("T", "-").replace(":", "");
