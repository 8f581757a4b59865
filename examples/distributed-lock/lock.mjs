// Counts under a lock: several processes add to one counter, and no addition is lost.
//
// usage: node lock.mjs NODE,NODE,… LOCK ROUNDS [SECONDS]
//
// In each round the process acquires the lock, reads the counter, works for SECONDS, and writes the counter with the
// fence of the lock. If it was paused for longer than its lease lives, another process has the lock by then. The fenced
// write is refused, and the round begins again.

import { setTimeout as sleep } from "node:timers/promises";

const TTL_S = 3;
const ANSWER_S = 30;
// Renewals give up on a node that hangs in time to ask the others.
const RENEWAL_S = TTL_S / 4;

// Asks any node, and another one if that gives no answer. Every request here may be repeated.
class Cluster {
  constructor(nodes, answerS = ANSWER_S) {
    this.nodes = nodes.split(",");
    this.answerS = answerS;
  }

  async ask(method, path, body, headers = {}) {
    const deadline = Date.now() + 60_000;
    while (Date.now() < deadline) {
      try {
        const signal = AbortSignal.timeout(this.answerS * 1000);
        const answer = await fetch(`http://${this.nodes[0]}${path}`, { method, body, headers, signal });
        const content = await answer.text();
        if (answer.status !== 503 && answer.status !== 504) return { status: answer.status, content };
      } catch {
        // Without an answer nobody knows whether the request was executed.
      }
      await this.next();
    }
    throw new Error(`no node answered ${method} ${path}`);
  }

  async next() {
    this.nodes.push(this.nodes.shift());
    await sleep(200);
  }
}

// A lease that is renewed until it ends.
class Lease {
  static async grant(cluster, tag) {
    const body = JSON.stringify({ ttl: `${TTL_S}s`, tag });
    const { status, content } = await cluster.ask("POST", "/v1/leases", body);
    if (status !== 201) throw new Error(content);
    return new Lease(cluster, JSON.parse(content).id);
  }

  constructor(cluster, id) {
    this.id = id;
    this.hasEnded = false;
    this.renew(cluster);
  }

  async renew(cluster) {
    const body = JSON.stringify({ ids: [this.id] });
    while (!this.hasEnded) {
      await sleep((TTL_S * 1000) / 3, undefined, { ref: false });
      const { content } = await cluster.ask("POST", "/v1/leases/renew", body);
      if (JSON.parse(content).leases[0].problem) this.hasEnded = true;
    }
  }
}

// Adds 1 to the counter. Returns whether that was done.
async function oneRound(cluster, lease, lock, seconds) {
  const wanted = JSON.stringify({ lease: lease.id, wait: "10s", value: `node ${process.pid}` });
  const acquired = await cluster.ask("POST", `/v1/locks/${lock}/acquire`, wanted);
  if (acquired.status === 404) lease.hasEnded = true;
  if (acquired.status !== 200) return false;
  const { fence } = JSON.parse(acquired.content);
  console.log(`holding, fence ${fence}`);

  const counter = `/v1/keys/${encodeURIComponent(`{${lock}}count`)}`;
  const read = await cluster.ask("GET", counter);
  const count = read.status === 200 ? Number(read.content) : 0;
  await sleep(seconds * 1000);
  // The write may be repeated after an answer that was lost, because nobody else can write meanwhile.
  const written = await cluster.ask("PUT", counter, String(count + 1), { "If-Fence": `${lock}=${fence}` });
  if (written.status === 412) {
    console.log(`refused, fence ${fence}`);
    return false;
  }
  await cluster.ask("POST", `/v1/locks/${lock}/release`, JSON.stringify({ lease: lease.id }));
  return true;
}

const [nodes, lock, rounds, seconds = "0"] = process.argv.slice(2);
const cluster = new Cluster(nodes);
let lease = await Lease.grant(new Cluster(nodes, RENEWAL_S), lock);
for (let done = 0; done < Number(rounds); ) {
  if (lease.hasEnded) lease = await Lease.grant(new Cluster(nodes, RENEWAL_S), lock);
  if (await oneRound(cluster, lease, lock, Number(seconds))) done += 1;
}
console.log("done");
process.exit(0);
