// What each screen costs: the bytes of its first visit, and the requests of a page that nobody uses.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { openPage, startBrowser, startNode } from "./lib.mjs";

const BYTES_MAX = 100_000;
const SCREENS = ["overview", "config", "config/web/pair/port", "keys", "watch", "cluster", "metrics", "access", "audit",
  "backups"];

let node;
let browser;

before(async () => {
  [node, browser] = await Promise.all([startNode(), startBrowser()]);
  await node.api("POST", "/api/namespaces/web/pairs/port?create=true", { value: 80 });
});
after(async () => {
  await browser?.close();
  await node?.stop();
});

/** Counts the bytes of the console's own files as they come over the network, with their headers. */
async function countBytes(page) {
  const session = await page.context().newCDPSession(page);
  const addresses = new Map();
  let bytes = 0;
  session.on("Network.responseReceived", ({ requestId, response }) => addresses.set(requestId, response.url));
  session.on("Network.loadingFinished", ({ requestId, encodedDataLength }) => {
    if (addresses.get(requestId)?.includes("/ui/")) bytes += encodedDataLength;
  });
  await session.send("Network.enable");
  return () => bytes;
}

/** Waits until nothing is asked any more; the stream of a watch is open all the time. */
const settled = (page, screen) => screen === "watch" ? null : page.waitForLoadState("networkidle");

for (const screen of SCREENS) {
  test(`${screen}: at most ${BYTES_MAX} bytes at the first visit, and a request in five seconds`, async () => {
    const { page, open, close } = await openPage(browser, node);
    const bytes = await countBytes(page);
    await page.clock.install();
    await open(`#/${screen}`);
    await page.getByRole("heading", { level: 1 }).first().waitFor();
    await settled(page, screen);
    assert.ok(bytes() > 20_000 && bytes() <= BYTES_MAX, `${bytes()} bytes`);
    let requests = 0;
    page.on("request", () => { requests += 1; });
    await page.clock.runFor(60_000);
    await settled(page, screen);
    assert.ok(requests <= 12, `${requests} requests in a minute`);
    await close();
  });
}
