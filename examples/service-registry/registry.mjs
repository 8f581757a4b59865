// Registers an instance of a service for as long as the process runs, or shows all instances as they come and go.
//
// usage: node registry.mjs NODE,NODE,… register SERVICE INSTANCE ADDRESS
//        node registry.mjs NODE,NODE,… discover SERVICE
//
// An instance is a key that is bound to a lease, so it is gone a few seconds after its process ends, in whatever way.
// `discover` prints the instances in one line whenever they change.

import { setTimeout as sleep } from "node:timers/promises";

const TTL_S = 3;
// A node that hangs is given up in time to ask the others.
const ANSWER_S = TTL_S / 4;
// Between two events: a node sends one every ten seconds at least.
const SILENCE_S = 60;

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

  // Server-sent events, from another node with the last cursor whenever the connection ends.
  async *events(path) {
    let cursor = "";
    for (;;) {
      const silence = new AbortController();
      const timer = setTimeout(() => silence.abort(), SILENCE_S * 1000);
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

// The beginning of the keys of a service. The braces make the service the tag of its keys and of its leases.
const instances = (service) => encodeURIComponent(`{${service}}/`);

async function register(nodes, service, instance, address) {
  const cluster = new Cluster(nodes);
  let lease;
  for (;;) {
    if (!lease) {
      const granted = await cluster.ask("POST", "/v1/leases", JSON.stringify({ ttl: `${TTL_S}s`, tag: service }));
      lease = JSON.parse(granted.content).id;
      const key = instances(service) + encodeURIComponent(instance);
      const bound = await cluster.ask("PUT", `/v1/keys/${key}?${new URLSearchParams({ lease })}`, address);
      if (bound.status === 200 || bound.status === 201) console.log("registered");
    }
    await sleep((TTL_S * 1000) / 3);
    const { content } = await cluster.ask("POST", "/v1/leases/renew", JSON.stringify({ ids: [lease] }));
    // A process that was paused for too long registers again.
    if (JSON.parse(content).leases[0].problem) lease = undefined;
  }
}

async function discover(nodes, service) {
  let known = new Map();
  let isKnown = false;
  for await (const { name, data } of new Cluster(nodes).events(`/v1/watch?prefix=${instances(service)}`)) {
    if (name === "reset") {
      known = new Map();
      isKnown = false;
    }
    if (name === "put") known.set(data.key, data.val);
    if (name === "delete") known.delete(data.key);
    if (name === "live") isKnown = true;
    if (isKnown && name !== "progress") {
      const shown = [...known].sort().map(([key, address]) => `${key.slice(key.indexOf("/") + 1)}=${address}`);
      console.log(["instances:", ...shown].join(" "));
    }
  }
}

const [nodes, action, ...rest] = process.argv.slice(2);
await { register, discover }[action](nodes, ...rest);
