// Runs ioredis against a cluster: plain client in both versions of the protocol, and cluster client. Arguments are the addresses
// of its nodes. With TEST_CA and TEST_TOKEN_FILE in the environment it connects with TLS and a token.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import Redis, { Cluster } from "ioredis";

const nodes = process.argv.slice(2).map((address) => {
  const [host, port] = address.split(":");
  return { host, port: Number(port) };
});

const { TEST_CA, TEST_TOKEN_FILE } = process.env;
const secure = TEST_CA && {
  tls: { ca: readFileSync(TEST_CA) },
  password: readFileSync(TEST_TOKEN_FILE, "ascii").trim(),
};
const connect = (node) => new Redis({ ...node, ...secure });
const connectCluster = () => new Cluster(nodes, { redisOptions: { ...secure } });

async function script(client, prefix) {
  const key = (name) => `{${prefix}}${name}`;
  assert.equal(await client.set(key("a"), "1"), "OK");
  assert.equal(await client.get(key("a")), "1");
  assert.equal(await client.get(key("none")), null);
  assert.equal(await client.incrby(key("a"), 41), 42);
  assert.equal(await client.set(key("a"), "x", "NX"), null);
  assert.equal(await client.set(key("a"), "x", "PX", 60_000, "GET"), "42");
  const ttl = await client.pttl(key("a"));
  assert.ok(ttl > 50_000 && ttl <= 60_000, `${ttl}`);
  assert.equal(await client.persist(key("a")), 1);
  const bytes = Buffer.from([0, 13, 10, 255]);
  assert.equal(await client.set(key("bytes"), bytes), "OK");
  assert.deepEqual(await client.getBuffer(key("bytes")), bytes);
  assert.equal(await client.mset(key("x"), "1", key("y"), "2"), "OK");
  assert.deepEqual(await client.mget(key("x"), key("y"), key("z")), ["1", "2", null]);

  const many = await Promise.all(
    Array.from({ length: 1000 }, async (_, number) => {
      const writing = client.set(`${prefix}:${number}`, number);
      const reading = client.get(`${prefix}:${number}`);
      await writing;
      return reading;
    }),
  );
  assert.deepEqual(many, Array.from({ length: 1000 }, (_, number) => `${number}`));

  const results = await client.multi().set(key("t"), "1").incr(key("t")).get(key("t")).exec();
  assert.deepEqual(results, [[null, "OK"], [null, 2], [null, "2"]]);
  assert.equal(await client.del(key("a"), key("bytes"), key("x"), key("y"), key("t"), key("none")), 5);
  await assert.rejects(client.call("LPUSH", key("list"), "a"), /ERR unknown command/);
}

for (const [number, node] of nodes.entries()) {
  const client = connect(node);
  await script(client, `io${number}`);
  await client.watch(`{io${number}}w`);
  await client.set(`{io${number}}w`, "other");
  assert.equal(await client.multi().set(`{io${number}}w`, "mine").exec(), null);
  const found = new Set();
  for await (const keys of client.scanStream({ match: `io${number}:*`, count: 100 })) {
    keys.forEach((key) => found.add(key));
  }
  assert.equal(found.size, 1000);
  await client.quit();
}
const cluster = connectCluster();
await script(cluster, "io-cluster");
await cluster.quit();

// Each key is on one master. A leadership may change meanwhile: then it is looked at anew.
async function masters() {
  const cluster = connectCluster();
  const keys = Array.from({ length: 30 }, (_, number) => `io-masters:${number}`).sort();
  await Promise.all(keys.map((key) => cluster.set(key, "v")));
  const found = [];
  let counted = 0;
  for (const master of cluster.nodes("master")) {
    counted += await master.dbsize();
    for await (const some of master.scanStream({ match: "io-masters:*", count: 100 })) found.push(...some);
  }
  await cluster.quit();
  const plain = connect(nodes[0]);
  const all = await plain.dbsize();
  await plain.quit();
  assert.deepEqual(found.sort(), keys);
  assert.equal(counted, all);
}
for (let attempt = 1; ; attempt += 1) {
  try {
    await masters();
    break;
  } catch (error) {
    if (attempt === 20) throw error;
    await new Promise((resolve) => setTimeout(resolve, 500));
  }
}
console.log(secure ? "ioredis with TLS and a token: ok" : "ioredis: ok");
