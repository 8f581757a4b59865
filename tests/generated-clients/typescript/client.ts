// Uses the types that openapi-typescript has made from `/openapi.json`, with openapi-fetch, against three nodes, and prints
// a line for each test: `ok NAME` or `FAILED NAME`.
//
// usage: node client.js URL URL URL

import assert from "node:assert/strict";
import createClient, { type Client } from "openapi-fetch";
import type { components, paths } from "./schema.js";

type Tidelock = Client<paths>;
type Nodes = readonly [Tidelock, Tidelock, Tidelock];
type Problem = components["schemas"]["Problem"];
type ConfigError = components["schemas"]["ConfigError"];

const bytes = (body: unknown) => body as BodyInit;

async function put(client: Tidelock, key: string, value: string, header: Record<string, string> = {}) {
  return client.PUT("/v1/keys/{key}", {
    params: { path: { key }, header },
    body: value,
    bodySerializer: bytes,
    headers: { "Content-Type": "application/octet-stream" },
  });
}

function version(response: Response): number {
  return Number(response.headers.get("ETag")?.replaceAll('"', ""));
}

async function putGetDelete([first, second, third]: Nodes) {
  const params = { path: { key: "generated/typescript/a b" } };
  assert.equal((await put(first, params.path.key, "one")).response.status, 201);
  const read = await second.GET("/v1/keys/{key}", { params, parseAs: "text" });
  assert.equal(read.data, "one");
  const deleted = await third.DELETE("/v1/keys/{key}", { params });
  assert.equal(deleted.response.status, 204);
}

async function missingKey([, second]: Nodes) {
  const { error } = await second.GET("/v1/keys/{key}", { params: { path: { key: "generated/typescript/missing" } } });
  const problem: Problem | undefined = error;
  assert.equal(problem?.status, 404);
  assert.match(problem.type, /\/not-found$/);
}

async function conditionalWrite([first, second, third]: Nodes) {
  const key = "generated/typescript/conditional";
  const etag = `"${version((await put(first, key, "one")).response)}"`;
  assert.equal((await put(second, key, "two", { "If-Match": etag })).response.status, 200);
  const refused = await put(third, key, "three", { "If-Match": etag });
  const problem: Problem | undefined = refused.error;
  assert.equal(problem?.status, 412);
  assert.ok(`"${problem.current}"` > etag);
  assert.equal((await put(third, key, "three", { "If-None-Match": "*" })).response.status, 412);
}

async function pages([first, second]: Nodes) {
  const prefix = "generated/typescript/page/";
  const names = Array.from({ length: 25 }, (_, number) => `${prefix}${String(number).padStart(2, "0")}`);
  for (const name of names) await put(first, name, "value");
  const found: (string | undefined)[] = [];
  let after: string | null | undefined;
  do {
    const query = { prefix, limit: 10, ...(after ? { after } : {}) };
    const { data, error } = await second.GET("/v1/keys", { params: { query } });
    assert.ok(data, JSON.stringify(error));
    assert.ok(data.items.length <= 10);
    found.push(...data.items.map((item) => item.key));
    after = data.next;
  } while (after);
  assert.deepEqual(found, names);
}

async function watch([first, second, third]: Nodes) {
  const key = "generated/typescript/watched";
  const begun = await second.GET("/v1/watch", { params: { query: { key, after: "now", wait: "1ms" } } });
  assert.ok(begun.data && typeof begun.data === "object", JSON.stringify(begun.error));
  const written = version((await put(first, key, "seen")).response);
  const changes = await third.GET("/v1/watch", { params: { query: { key, after: begun.data.cursor, wait: "30s" } } });
  assert.ok(changes.data && typeof changes.data === "object", JSON.stringify(changes.error));
  assert.deepEqual(
    changes.data.changes.map((change) => [change.key, change.val, change.ver]),
    [[key, "seen", written]],
  );
}

async function transaction([first, second]: Nodes) {
  const key = "{generated-typescript}x";
  const body = { id: "once", then: [{ put: { key, val: "1" } }, { get: { key } }] };
  const answer = await first.POST("/v1/transactions", { body });
  assert.ok(answer.data, JSON.stringify(answer.error));
  const repeated = await second.POST("/v1/transactions", { body });
  assert.deepEqual(repeated.data?.results, answer.data.results);
}

async function configuration([first, second, third]: Nodes) {
  const namespace = "generated-typescript";
  const published = await first.POST("/api/namespaces/{namespace}/publish", {
    params: { path: { namespace } },
    body: {
      create: true,
      changes: [
        { pair: "port", value: 8080 },
        { container: "app", fields: [{ key: "port", fieldType: "kv", value: "port" }] },
      ],
    },
  });
  assert.ok(published.data?.data.changed, JSON.stringify(published.error));
  const params = { path: { namespace, key: "app" } };
  const read = await second.GET("/api/namespaces/{namespace}/containers/{key}", { params });
  assert.deepEqual(read.data?.data.fields.map((field) => field.key), ["port"]);
  const document = await third.GET("/api/namespaces/{namespace}/containers/{key}/dl", { params, parseAs: "text" });
  assert.deepEqual(JSON.parse(String(document.data)), { port: 8080 });
  const missing = await third.GET("/api/namespaces/{namespace}/containers/{key}", {
    params: { path: { namespace, key: "missing" } },
  });
  const error: ConfigError | undefined = missing.error;
  assert.equal(error?.errcode, 40403);
}

const nodes = process.argv.slice(2).map((baseUrl) => createClient<paths>({ baseUrl }));
const [first, second, third] = nodes;
assert.ok(first && second && third, "usage: node client.js URL URL URL");
for (const test of [putGetDelete, missingKey, conditionalWrite, pages, watch, transaction, configuration]) {
  try {
    await test([first, second, third]);
    console.log(`ok ${test.name}`);
  } catch (error) {
    process.exitCode = 1;
    console.log(`FAILED ${test.name}: ${error instanceof Error ? error.stack : error}`);
  }
}
