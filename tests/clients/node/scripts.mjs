// Runs libraries that need Lua scripts, by way of ioredis: rate-limiter-flexible, redlock and redis-semaphore. Arguments are the addresses of the
// nodes. With TEST_CA and TEST_TOKEN_FILE in the environment it connects with TLS and a token.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import Redis from "ioredis";
import { RateLimiterRedis } from "rate-limiter-flexible";
import { Mutex } from "redis-semaphore";
import Redlock from "redlock";

const { TEST_CA, TEST_TOKEN_FILE } = process.env;
const secure = TEST_CA && {
  tls: { ca: readFileSync(TEST_CA) },
  password: readFileSync(TEST_TOKEN_FILE, "ascii").trim(),
};
const clients = process.argv.slice(2).map((address) => {
  const [host, port] = address.split(":");
  return new Redis({ host, port: Number(port), ...secure });
});
const prefix = "node-scripts";

async function limits() {
  const limiters = clients.map((storeClient) => new RateLimiterRedis({ storeClient, keyPrefix: prefix, points: 5, duration: 3600 }));
  const results = await Promise.allSettled(Array.from({ length: 12 }, (_, number) => limiters[number % limiters.length].consume("user")));
  const [passed, refused] = ["fulfilled", "rejected"].map((status) => results.filter((result) => result.status === status));
  assert.equal(passed.length, 5, JSON.stringify(results));
  const left = passed.map((result) => result.value.remainingPoints).sort();
  assert.deepEqual(left, [0, 1, 2, 3, 4]);
  for (const { reason } of refused) {
    assert.ok(reason.msBeforeNext > 3_500_000 && reason.msBeforeNext <= 3_600_000, `${reason}`);
  }
  const seen = await limiters[0].get("user");
  assert.equal(seen.consumedPoints, 12);
  assert.equal(await limiters[1].delete("user"), true);
  assert.equal(await limiters[2].get("user"), null);
}

async function locks() {
  // The nodes are one store, so one of them is asked.
  const [here, there] = [clients[0], clients[1]].map((client) => new Redlock([client], { retryCount: 0 }));
  const names = [`{${prefix}}a`, `{${prefix}}b`];
  const lock = await here.lock(names, 30_000);
  await assert.rejects(there.lock([names[1]], 30_000), /exceeded 0 attempts/i);
  await lock.extend(60_000);
  const ttl = await clients[1].pttl(names[0]);
  assert.ok(ttl > 50_000 && ttl <= 60_000, `${ttl}`);
  await lock.unlock();
  const other = await there.lock([names[1]], 30_000);
  await assert.rejects(lock.unlock(), /Unable to fully release|already expired/i);
  await other.unlock();
}

// The semaphores of the same library need sorted sets.
async function mutexes() {
  const name = `${prefix}-mutex`;
  const mutex = (client, options) => new Mutex(client, name, { lockTimeout: 60_000, acquireTimeout: 60_000, ...options });
  const [here, there] = [clients[0], clients[1]].map((client) => mutex(client));
  await here.acquire();
  assert.equal(await mutex(clients[2], { acquireAttemptsLimit: 1 }).tryAcquire(), false);
  const waiting = there.acquire();
  await here.release();
  await waiting;
  await there.release();
  assert.equal(await clients[0].exists(`mutex:${name}`), 0);
  // The library renews a lock by a script, and tells its holder that it is lost.
  const lost = Promise.withResolvers();
  const renewed = mutex(clients[2], { refreshInterval: 10, onLockLost: lost.resolve });
  await renewed.acquire();
  await clients[0].set(`mutex:${name}`, "another holder");
  assert.match((await lost.promise).message, /Lost mutex/);
  await renewed.release();
  assert.equal(await clients[1].getdel(`mutex:${name}`), "another holder");
}

async function commands() {
  const [client] = clients;
  client.defineCommand("addTo", { numberOfKeys: 1, lua: "return redis.call('incrby', KEYS[1], ARGV[1])" });
  assert.equal(await client.addTo(`${prefix}-sum`, 40), 40);
  // A pipeline takes the first commands into account.
  const results = await client.pipeline().set(`${prefix}-sum`, 1).addTo(`${prefix}-sum`, 41).get(`${prefix}-sum`).exec();
  assert.deepEqual(results, [[null, "OK"], [null, 42], [null, "42"]]);
}

await limits();
await locks();
await mutexes();
await commands();
await Promise.all(clients.map((client) => client.quit()));
console.log(`rate-limiter-flexible, redlock, redis-semaphore${secure ? " with TLS and a token" : ""}: ok`);
