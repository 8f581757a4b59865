// The Cluster screen: the map, a host, a shard, and changes with their progress, of one node.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { axeEverywhere, eventually, openPage, startBrowser, startNode } from "./lib.mjs";

let node;
let browser;
before(async () => {
  [node, browser] = await Promise.all([startNode(), startBrowser()]);
});
after(async () => {
  await browser.close();
  await node.stop();
});

test("a host is drained, followed until done, and the drain is ended", async () => {
  const { page, open, close } = await openPage(browser, node);
  await open("#/cluster");
  await page.getByRole("link", { name: "Node 1" }).click();
  await page.getByRole("button", { name: "Drain…" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Drain" }).click();
  await page.getByText(/(In progress|Done): Node 1 is drained\./).waitFor();
  await page.reload();
  await page.getByText(/(In progress|Done): Node 1 is drained\./).waitFor();
  await page.getByRole("button", { name: "End drain…" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "End drain" }).click();
  await page.getByText("Done: Node 1 may lead again.").waitFor();
  await close();
});

test("a refused removal is explained, and needs the name typed", async () => {
  const { page, open, expectStatus, close } = await openPage(browser, node);
  await open("#/cluster?host=1");
  await page.getByRole("button", { name: "Remove…" }).click();
  const dialog = page.getByRole("dialog");
  assert.ok(await dialog.getByRole("button", { name: "Remove" }).isDisabled());
  await dialog.getByLabel("Name of the host").fill("node-1");
  expectStatus(409);
  await dialog.getByRole("button", { name: "Remove" }).click();
  await dialog.getByRole("alert").getByText("Last voter", { exact: true }).waitFor();
  assert.equal(await dialog.getByLabel("Name of the host").inputValue(), "node-1");
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
  await close();
});

test("the removal of a host is cancelled", async () => {
  const { page, open, close } = await openPage(browser, node);
  const view = await node.api("GET", "/v1/cluster");
  const host = { ...view.hosts[0], node: 2, standing: "leaving" };
  await page.route("**/v1/cluster", (route) => route.fulfill({ json: { ...view, hosts: [...view.hosts, host] } }));
  let requests = 0;
  await page.route("**/v1/cluster/hosts/2/add", (route) => {
    requests += route.request().method() === "POST";
    return route.fulfill({ json: { done: true, waiting_for: [] } });
  });
  await open("#/cluster?host=2");
  await page.getByRole("button", { name: "Cancel removal…" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Cancel removal" }).click();
  await page.getByText("Done: Node 2 may vote.").waitFor();
  assert.equal(requests, 1);
  await close();
});

test("a shard is added, gets slots, gives them back and is removed", async () => {
  const { page, open, close } = await openPage(browser, node);
  await open("#/cluster");
  await page.getByRole("button", { name: "Add shard…" }).click();
  await page.getByLabel("Name (optional)").fill("<b>orders</b>");
  await page.getByRole("dialog").getByRole("button", { name: "Add" }).click();
  await page.waitForURL(/shard=\d+/);
  const id = /shard=(\d+)/.exec(page.url())[1];
  await page.getByText("<b>orders</b>").waitFor();
  await page.getByRole("button", { name: "Rebalance…" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Rebalance" }).click();
  await page.getByText(/moves? requested/).waitFor();
  const slots = async (shard) => (await node.api("GET", "/v1/cluster/moves")).shards.find((entry) =>
    entry.shard === shard);
  const done = async () => (await node.api("GET", "/v1/cluster/moves")).done;
  await eventually(async () => await done() && (await slots(Number(id)))?.count > 0, "the shard has slots");
  await page.goto(page.url().replace(/shard=\d+/, "shard=1"));
  await page.getByRole("heading", { name: "Shard 1", exact: true }).waitFor();
  await page.getByRole("button", { name: "Move slots here…" }).click();
  await page.getByLabel("Slots", { exact: true }).fill("0-");
  assert.ok(await page.getByRole("dialog").getByRole("button", { name: "Move" }).isDisabled());
  await page.getByLabel("Slots", { exact: true }).fill("0-16383");
  await page.getByRole("dialog").getByRole("button", { name: "Move" }).click();
  await eventually(async () => await done() && (await slots(Number(id))).count === 0, "the slots are back");
  await page.goto(page.url().replace(/shard=\d+/, `shard=${id}`));
  await page.reload();
  await page.getByRole("button", { name: "Remove…" }).click();
  await page.getByLabel("Name of the shard").fill("<b>orders</b>");
  await page.getByRole("dialog").getByRole("button", { name: "Remove" }).click();
  await page.getByText(`Shard ${id} removed`).waitFor();
  await close();
});

test("an unknown host, shard or change in the address does no harm", async () => {
  const { page, open, close } = await openPage(browser, node);
  await open("#/cluster?host=99&progress=javascript:alert(1)");
  await page.getByText("There is no such host").waitFor();
  await close();
});

test("the keyboard alone opens a shard and its dialog, and gets back", async () => {
  const { page, open, close } = await openPage(browser, node);
  await open("#/cluster");
  await page.getByRole("link", { name: "Shard 1", exact: true }).press("Enter");
  const button = page.getByRole("button", { name: "Transfer leadership…" });
  await button.press("Enter");
  await page.getByText("No other host has a vote in this shard").waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  assert.ok(await button.evaluate((element) => element === document.activeElement), "the focus is back");
  await close();
});

test("axe finds nothing in the map with a host, and in the explanation of a shard", async () => {
  await axeEverywhere(browser, node, "#/cluster?host=1", (page) => page.getByRole("heading",
    { name: "Node 1" }).waitFor());
  await axeEverywhere(browser, node, "#/cluster?shard=1", (page) =>
    page.getByText(/one of .* voters|voter/).first().waitFor());
});
