// Lets one of several processes lead, and shows all of them who leads.
//
// usage: node election.mjs NODE,NODE,… ELECTION CANDIDATE
//
// An election is a lock whose value is the name of the candidate that holds it. While the process leads, it writes its
// name to a key with the fence of the lock, so that one that was paused and does not know that it was replaced changes
// nothing. Prints `leader NAME` when it learns who leads, `elected FENCE` when it is elected, and `deposed` when it may
// not act as the leader any more.

import { setTimeout as sleep } from "node:timers/promises";

const TTL_S = 3;
const ANSWER_S = 60;
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

  // Server-sent events, from another node with the last cursor whenever the connection ends.
  async *events(path) {
    let cursor = "";
    for (;;) {
      const silence = new AbortController();
      const timer = setTimeout(() => silence.abort(), ANSWER_S * 1000);
      try {
        const headers = { "Last-Event-ID": cursor };
        const answer = await fetch(`http://${this.nodes[0]}${path}`, { headers, signal: silence.signal });
        let text = "";
        for await (const part of answer.body.pipeThrough(new TextDecoderStream())) {
          // A node sends an event every ten seconds at least.
          timer.refresh();
          const blocks = (text + part).split("\n\n");
          text = blocks.pop();
          for (const block of blocks) {
            const event = Object.fromEntries(block.split("\n").map((line) => line.split(/: (.*)/s, 2)));
            cursor = event.id ?? cursor;
            if (event.event) yield { name: event.event, data: JSON.parse(event.data ?? "{}") };
          }
        }
      } catch {
        // The connection has ended, or there was none.
      }
      clearTimeout(timer);
      await this.next();
    }
  }
}

// Prints who leads, whenever that changes.
async function observe(nodes, election) {
  let shown = 0;
  for await (const { name, data } of new Cluster(nodes).events(`/v1/watch?key=${election}`)) {
    if (name === "put" && data.ver !== shown) {
      shown = data.ver;
      console.log(`leader ${data.val}`);
    }
  }
}

// Extends the term of a candidate until it is over.
async function renew(cluster, term) {
  const body = JSON.stringify({ ids: [term.lease] });
  while (!term.isOver) {
    await sleep((TTL_S * 1000) / 3);
    const asked = performance.now();
    const { content } = await cluster.ask("POST", "/v1/leases/renew", body);
    const [lease] = JSON.parse(content).leases;
    if (lease.problem) term.isOver = true;
    else term.until = asked + lease.valid_for_ms;
  }
}

// Leads once: from the election to the end of the term.
async function campaign(nodes, election, candidate) {
  const cluster = new Cluster(nodes);
  const asked = performance.now();
  const granted = await cluster.ask("POST", "/v1/leases", JSON.stringify({ ttl: `${TTL_S}s`, tag: election }));
  const term = { lease: JSON.parse(granted.content).id, until: asked + TTL_S * 1000, isOver: false };
  renew(new Cluster(nodes, RENEWAL_S), term);

  const wanted = JSON.stringify({ lease: term.lease, wait: "20s", value: candidate });
  let acquired;
  do {
    acquired = await cluster.ask("POST", `/v1/locks/${election}/acquire`, wanted);
  } while (acquired.status === 409);
  if (acquired.status !== 200) {
    term.isOver = true;
    return;
  }
  const { fence } = JSON.parse(acquired.content);
  console.log(`elected ${fence}`);
  // The process must stop before its lease ends, even if it hears from no node.
  while (!term.isOver && performance.now() < term.until) {
    await lead(cluster, { election, candidate, fence, term });
    await sleep(200);
  }
  term.isOver = true;
  console.log("deposed");
}

// The work that only the leader may do.
async function lead(cluster, { election, candidate, fence, term }) {
  const key = encodeURIComponent(`{${election}}done-by`);
  const written = await cluster.ask("PUT", `/v1/keys/${key}`, candidate, { "If-Fence": `${election}=${fence}` });
  if (written.status === 412) {
    console.log(`refused ${fence}`);
    term.isOver = true;
  }
}

const [nodes, election, candidate] = process.argv.slice(2);
observe(nodes, election);
for (;;) await campaign(nodes, election, candidate);
