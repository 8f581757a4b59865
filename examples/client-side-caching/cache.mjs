// Reads a setting often, from a cache beside the program that a node keeps up to date.
//
// usage: node cache.mjs NODE,NODE,… KEY
//
// The nodes are addresses of the Redis protocol. Needs @redis/client 6 or later. Prints the value whenever it is another
// one.

import { setTimeout as sleep } from "node:timers/promises";
import { createClient } from "@redis/client";

// Reads keys from memory, and from a node those that have changed or were not read yet.
class CachedReads {
  constructor(nodes) {
    this.nodes = nodes.split(",");
  }

  async get(key) {
    for (;;) {
      try {
        return await (await this.connected()).get(key);
      } catch {
        await this.leave();
      }
    }
  }

  async connected() {
    if (this.client) return this.client;
    const clientSideCache = { ttl: 0, maxEntries: 10_000, evictPolicy: "LRU" };
    const socket = { connectTimeout: 5_000, reconnectStrategy: false };
    this.client = createClient({ url: `redis://${this.nodes[0]}`, RESP: 3, socket, clientSideCache });
    // What fails is tried at another node.
    this.client.on("error", () => {});
    return this.client.connect();
  }

  // The cache of the old connection goes with it: nobody tells what has changed meanwhile.
  async leave() {
    this.client.destroy();
    this.client = undefined;
    this.nodes.push(this.nodes.shift());
    await sleep(200);
  }
}

const [nodes, key] = process.argv.slice(2);
const reads = new CachedReads(nodes);
let shown;
for (;;) {
  const value = await reads.get(key);
  if (value !== shown) console.log(value ?? "deleted");
  shown = value;
  await sleep(10);
}
