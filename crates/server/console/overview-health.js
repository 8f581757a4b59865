// Judges the health of the cluster from what one node reports: pure functions that return sentences. The page
// shows them; the thresholds stand here.
import { members, replicaLag } from "./lib-ops.js";
import { bytes, count, plural, relativeTime } from "./lib-text.js";

const LAG_ENTRIES_MAX = 10_000;
const CERTIFICATE_DAYS_MIN = 14;
const DAY_MS = 86_400_000;

const problem = (level, text, link) => ({ level, text, link });

function certificateProblems(metrics, nowMs) {
  const expires = metrics("tls_certificate_expires_unix_seconds") * 1000;
  if (!expires || expires - nowMs > CERTIFICATE_DAYS_MIN * DAY_MS) return [];
  const text = expires < nowMs
    ? "The certificate of this node has expired."
    : `The certificate of this node expires ${relativeTime(expires, nowMs)}.`;
  return [problem(expires < nowMs ? "error" : "warn", text)];
}

function hostProblems(cluster) {
  return members(cluster).flatMap((host) => {
    const link = `#/cluster?host=${host.node}`;
    if (host.dead) return [problem("error",
      `Node ${host.node} is dead: its replicas are placed on other hosts.`, link)];
    if (!host.connected) return [problem("warn", `Node ${host.node} is not connected.`, link)];
    if (host.draining) return [problem("info", `Node ${host.node} is draining.`, link)];
    return [];
  });
}

function shardProblems(cluster) {
  const lag = replicaLag(cluster);
  const leaderless = cluster.shards.filter((shard) => shard.leader === null).map((shard) =>
    problem("error", `Shard ${shard.id} has no leader: its keys can be neither read nor written.`,
      `#/cluster?shard=${shard.id}`));
  const replicas = cluster.replicas.flatMap(({ shard, node, diverged }) => {
    const link = `#/cluster?shard=${shard}`;
    if (diverged) return [problem("error", `Node ${node} stopped: its replica of shard ${shard} diverged.`,
      link)];
    const behind = lag.get(`${shard}:${node}`);
    return behind > LAG_ENTRIES_MAX
      ? [problem("warn", `Node ${node} is ${count(behind)} entries behind in shard ${shard}.`, link)]
      : [];
  });
  return [...leaderless, ...replicas];
}

function readinessProblems({ checks, warnings }, metrics) {
  const failed = checks.filter((check) => !check.ok && !check.name.startsWith("shard ")).map((check) =>
    problem("error", `Check “${check.name}” of this node failed: ${check.cause}.`));
  const known = /^no connection to node|--insecure/;
  const others = warnings.filter((text) => !known.test(text)).map((text) => problem("warn", sentence(text)));
  const slow = metrics("disk_slow") === 1
    ? [problem("error", "The disk of this node is slow: writes wait for it.")] : [];
  return [...failed, ...others, ...slow];
}

const sentence = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`;

/** Settings that lose data or let others in: [{ title, text }]. */
export function unsafeSettings({ readiness, metrics, who }) {
  const unsafe = readiness.warnings.filter((text) => text.includes("--insecure")).map((text) =>
    ({ title: "Reachable by other machines without protection", text: sentence(text) }));
  if (!who.required) {
    unsafe.push({
      title: "Tokens are not required",
      text: "Everyone who reaches a port of a node may read and change everything.",
      link: "#/access",
    });
  }
  if (unsafe.length === 0 && metrics("insecure_listeners") > 0) {
    unsafe.push({ title: "Listening without TLS",
      text: "Other machines reach a port of this node without TLS." });
  }
  return unsafe;
}

/** Returns { level, sentence, problems }: the problems, the worst first, and one sentence for all. */
export function assessHealth({ readiness, cluster, metrics }, nowMs) {
  const order = ["error", "warn", "info"];
  const problems = [
    ...shardProblems(cluster), ...hostProblems(cluster),
    ...readinessProblems(readiness, metrics), ...certificateProblems(metrics, nowMs),
  ].sort((a, b) => order.indexOf(a.level) - order.indexOf(b.level));
  const serious = problems.filter(({ level }) => level !== "info");
  const level = serious[0]?.level ?? "ok";
  if (level === "ok") return { level, sentence: healthySentence(cluster), problems };
  const more = serious.length > 1 ? ` And ${plural(serious.length - 1, "more problem")}.` : "";
  return { level, sentence: `${serious[0].text}${more}`, problems };
}

function healthySentence(cluster) {
  const hosts = members(cluster).length;
  return `Healthy: ${hosts === 1 ? "the host is up" : `all ${count(hosts)} hosts are connected`}, and ${
    plural(cluster.shards.length, "shard")} ${cluster.shards.length === 1 ? "has a leader"
      : "have leaders"}.`;
}

/** Facts about this node's disk, memory and certificate: [label, text]. */
export function nodeFacts(metrics, nowMs) {
  const fsyncs = metrics("wal_fsync_duration_seconds_count");
  const mean = fsyncs > 0 ? (metrics("wal_fsync_duration_seconds_sum") / fsyncs) * 1000 : null;
  const expires = metrics("tls_certificate_expires_unix_seconds") * 1000;
  const stalls = metrics("disk_stalls_total") + metrics("disk_slow_stalls_total");
  const memory = (name) => bytes(metrics(name));
  return [
    ["Log on disk", bytes(metrics("wal_file_bytes"))],
    ["Snapshots on disk", bytes(metrics("snapshot_file_bytes"))],
    ["Mean time of a sync", mean === null ? "not measured" : `${mean.toFixed(2)} ms`],
    ["Disk stalls since the start", count(stalls)],
    ["Memory of clients", `${memory("client_memory_bytes")} of ${memory("client_memory_limit_bytes")}`],
    ["Certificate", expires ? `expires ${relativeTime(expires, nowMs)}` : "none (no TLS)"],
  ];
}
