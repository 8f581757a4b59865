// Moves units from one account to another, each exactly once, whatever happens to answers.
//
// usage: node transfer.mjs NODE,NODE,… BANK UNITS
//
// A transfer is a transaction with an id. If its answer is lost, the program sends it again with the same id: the store
// does it once, and answers every repetition with the first outcome.

import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";

const ANSWER_S = 30;

// Asks any node, and another one if that gives no answer. Every request here may be repeated.
class Cluster {
  constructor(nodes) {
    this.nodes = nodes.split(",");
  }

  async ask(method, path, body, headers = {}) {
    const deadline = Date.now() + 60_000;
    while (Date.now() < deadline) {
      try {
        const signal = AbortSignal.timeout(ANSWER_S * 1000);
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

async function transact(cluster, transaction) {
  const { status, content } = await cluster.ask("POST", "/v1/transactions", JSON.stringify(transaction));
  if (status !== 200) throw new Error(content);
  return JSON.parse(content);
}

// Moves one unit. Returns false if another process changed an account since it was read.
async function transfer(cluster, accounts) {
  const found = await transact(cluster, { then: accounts.map((key) => ({ get: { key } })) });
  const [giver, taker] = found.results.map((result) => result.get);
  const done = await transact(cluster, {
    // Without the id, a repetition after a lost answer could not tell its own change from that of another process.
    id: randomUUID(),
    if: [giver, taker].map(({ key, ver }) => ({ key, ver })),
    then: [
      { put: { key: giver.key, val: String(Number(giver.val ?? 0) - 1) } },
      { put: { key: taker.key, val: String(Number(taker.val ?? 0) + 1) } },
    ],
  });
  return done.succeeded;
}

const [nodes, bank, units] = process.argv.slice(2);
const cluster = new Cluster(nodes);
// The common tag puts both accounts into one slot.
const accounts = [`{${bank}}a`, `{${bank}}b`];
for (let moved = 0; moved < Number(units); ) {
  if (await transfer(cluster, accounts)) moved += 1;
}
console.log("done");
