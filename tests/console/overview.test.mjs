// The Overview screen, of a healthy cluster of one node.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { axeEverywhere, openPage, startBrowser, startNode } from "./lib.mjs";

let node;
let browser;
before(async () => {
  [node, browser] = await Promise.all([startNode(), startBrowser()]);
});
after(async () => {
  await browser.close();
  await node.stop();
});

test("one sentence says that the cluster is healthy, and unsafe settings come first", async () => {
  const { page, open, close } = await openPage(browser, node);
  await open("#/overview");
  await page.getByText(/^Healthy: /).waitFor();
  await page.getByText("Tokens are not required").waitFor();
  await page.getByText("disk: ok").waitFor();
  await page.getByRole("link", { name: "Open access" }).click();
  await page.getByRole("heading", { name: "Access" }).waitFor();
  await page.goBack();
  await page.getByRole("link", { name: "Node 1" }).click();
  await page.getByRole("heading", { name: "Node 1" }).waitFor();
  await close();
});

test("a failed check and a warning are named", async () => {
  const { page, open, expectStatus, close } = await openPage(browser, node);
  const text = "[-]disk failed: the disk takes no writes\n[+]serving ok\n[!]http listens on 0.0.0.0:8001, beyond loopback, "
    + "with --insecure: without TLS\n[!]<b>no markup</b>\nnot ready\n";
  await page.route("**/readyz?verbose", (route) => route.fulfill({ status: 503, contentType: "text/plain",
    body: text }));
  expectStatus(503);
  await open("#/overview");
  await page.getByText("Check “disk” of this node failed: the disk takes no writes. And 1 more problem.").waitFor();
  await page.getByText("Reachable by other machines without protection").waitFor();
  await page.getByText("<b>no markup</b>.").waitFor();
  await close();
});

test("it asks at most once in five seconds while nobody uses it", async () => {
  const { page, open, close } = await openPage(browser, node);
  await page.clock.install();
  await open("#/overview");
  await page.getByText(/^Healthy: /).waitFor();
  let requests = 0;
  page.on("request", () => { requests += 1; });
  await page.clock.runFor(60_000);
  await page.getByText(/^Healthy: /).waitFor();
  assert.ok(requests <= 12, `${requests} requests in a minute`);
  await close();
});

test("axe finds nothing", async () => {
  await axeEverywhere(browser, node, "#/overview", (page) => page.getByText(/^Healthy: /).waitFor());
});
