// Keeps feature flags in memory and up to date, without asking for them.
//
// usage: node flags.mjs NODE,NODE,… PREFIX
//
// A flag is a key that begins with PREFIX; its value is on or off. A program reads `now` wherever it decides by a flag.
// Prints each flag as it changes, and `ready` when it knows all of them.

import { setTimeout as sleep } from "node:timers/promises";

const ANSWER_S = 60;

// Follows events of any node, and of another one when that ends.
class Cluster {
  constructor(nodes) {
    this.nodes = nodes.split(",");
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

class Flags {
  now = new Map();

  async follow(nodes, prefix) {
    let known = new Map();
    let isLive = false;
    for await (const { name, data } of new Cluster(nodes).events(`/v1/watch?prefix=${encodeURIComponent(prefix)}`)) {
      if (name === "reset") {
        // The state follows. What was known until now serves until it is complete.
        known = new Map();
        isLive = false;
      }
      if (name === "put") known.set(data.key, data.val);
      if (name === "delete") known.delete(data.key);
      if (name === "live") {
        isLive = true;
        console.log("ready");
      }
      if (isLive && name !== "progress") this.replace(new Map(known));
    }
  }

  replace(flags) {
    for (const flag of [...new Set([...this.now.keys(), ...flags.keys()])].sort()) {
      if (this.now.get(flag) !== flags.get(flag)) console.log(flag, flags.get(flag) ?? "deleted");
    }
    this.now = flags;
  }
}

const [nodes, prefix] = process.argv.slice(2);
await new Flags().follow(nodes, prefix);
