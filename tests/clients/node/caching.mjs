// Runs node-redis with its client-side cache against a cluster. Arguments are the addresses of its nodes. With TEST_CA and
// TEST_TOKEN_FILE in the environment it connects with TLS and a token.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { request } from "node:http";
import { request as secureRequest } from "node:https";
import { setTimeout as sleep } from "node:timers/promises";
import { createClient } from "@redis/client";

const nodes = process.argv.slice(2).map((address) => {
  const [host, port] = address.split(":");
  return { host, port: Number(port) };
});

const { TEST_CA, TEST_TOKEN_FILE } = process.env;
const secure = TEST_CA && { ca: readFileSync(TEST_CA), token: readFileSync(TEST_TOKEN_FILE, "ascii").trim() };

async function connect({ host, port }, options = {}) {
  const socket = secure ? { host, port, tls: true, ca: secure.ca } : { host, port };
  const client = createClient({ socket, password: secure?.token, RESP: 3, ...options });
  client.on("error", (error) => assert.fail(error));
  return client.connect();
}

// Writes a key over HTTP. scripts/test-clients has chosen the ports.
function put({ host, port }, key, value) {
  const { promise, resolve, reject } = Promise.withResolvers();
  const headers = secure ? { Authorization: `Bearer ${secure.token}` } : {};
  const options = { host, port: port - 3, path: `/v1/keys/${key}`, method: "PUT", headers, ca: secure?.ca };
  const sent = (secure ? secureRequest : request)(options, (answer) => {
    answer.resume();
    answer.on("end", () => ([200, 201].includes(answer.statusCode) ? resolve() : reject(answer.statusCode)));
  });
  sent.on("error", reject);
  sent.end(value);
  return promise;
}

async function eventually(what, holds) {
  const deadline = Date.now() + 60_000;
  while (!(await holds())) {
    assert.ok(Date.now() < deadline, what);
    await sleep(10);
  }
}

for (const [number, node] of nodes.entries()) {
  const other = nodes[(number + 1) % nodes.length];
  const clientSideCache = { ttl: 0, maxEntries: 100, evictPolicy: "LRU" };
  const client = await connect(node, { clientSideCache });
  const key = `node-cached-${number}`;
  await put(other, key, "first");
  // The invalidation of the write may come after the first read.
  await eventually("a read from the cache", async () => {
    assert.equal(await client.get(key), "first");
    return client.clientSideCache.stats().hitCount > 0;
  });
  for (const value of ["second", "third"]) {
    await put(other, key, value);
    await eventually(`${value} replaces a cached value`, async () => (await client.get(key)) === value);
  }
  const writer = await connect(other);
  await writer.flushAll();
  await eventually("a removal of all keys empties the cache", async () => (await client.get(key)) === null);
  await writer.close();
  await client.close();
}
console.log(secure ? "node-redis with TLS and a token: ok" : "node-redis: ok");
