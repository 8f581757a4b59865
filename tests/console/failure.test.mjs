// Three nodes, of which some are killed under an open page: the page says so, keeps input, and works again.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { eventually, openPage, startBrowser, startCluster } from "./lib.mjs";

let cluster;
let browser;
before(async () => {
  [cluster, browser] = await Promise.all([startCluster(3), startBrowser()]);
});
after(async () => {
  await browser.close();
  await cluster.stop();
});

test("the node that serves the page is killed and started again", async () => {
  const [node] = cluster.nodes;
  await node.api("PUT", "/v1/keys/app", "before");
  const opened = await openPage(browser, node, { isLossy: true });
  const { page, open, close } = opened;
  await open("#/keys?key=app");
  const value = page.getByRole("textbox", { name: "Value" });
  await value.fill("typed before the failure");
  await node.kill();
  await page.getByRole("button", { name: "Save", exact: true }).click();
  await page.getByRole("alert").getByText("No answer").waitFor();
  assert.equal(await value.inputValue(), "typed before the failure");
  await node.start();
  await page.getByRole("button", { name: "Save", exact: true }).click();
  await page.getByText("Saved app as version").waitFor();
  const saved = await fetch(`${cluster.nodes[1].url}/v1/keys/app`);
  assert.equal(await saved.text(), "typed before the failure");
  await close();
});

test("the watch of a page goes on when its node is back", async () => {
  const [node] = cluster.nodes;
  const { page, open, close } = await openPage(browser, node, { isLossy: true });
  await open("#/watch/keys?prefix=live/");
  await page.getByText("live", { exact: true }).waitFor();
  await node.kill();
  await page.getByText("connecting", { exact: true }).waitFor();
  await cluster.nodes[1].api("PUT", "/v1/keys/live%2Fmissed", "while the node was down");
  await node.start();
  await page.getByText("live", { exact: true }).waitFor({ timeout: 30_000 });
  await cluster.nodes[1].api("PUT", "/v1/keys/live%2Fafter", "after");
  await page.getByRole("link", { name: "live/after" }).waitFor();
  await close();
});

test("another node is killed: the overview names it, and is healthy again when it is back", async () => {
  const [node, , last] = cluster.nodes;
  const { page, open, close } = await openPage(browser, node, { isLossy: true });
  await open("#/overview");
  await page.getByText(/^Healthy: /).waitFor();
  await last.kill();
  const state = async () => (await node.api("GET", "/v1/cluster")).hosts.map(({ connected }) => connected);
  await eventually(async () => (await state()).includes(false), "the node notices");
  await page.reload();
  await page.getByText(/Node \d is not connected\./).first().waitFor();
  await last.start();
  await eventually(async () => !(await state()).includes(false), "the node is connected again");
  await page.reload();
  await page.getByText(/^Healthy: /).waitFor();
  await close();
});
