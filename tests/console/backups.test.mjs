// The Backups screen: make and download, verify, and what a damaged file says.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { after, before, test } from "node:test";
import { axeEverywhere, openPage, startBrowser, startNode, uniqueName } from "./lib.mjs";

let node;
let browser;
before(async () => {
  [node, browser] = await Promise.all([startNode(), startBrowser()]);
});
after(async () => {
  await browser.close();
  await node.stop();
});

test("a backup is made, verified and saved; a damaged and a cut file are refused", async () => {
  await node.api("PUT", `/v1/keys/${uniqueName("backup")}`, "value");
  const { page, open, close } = await openPage(browser, node);
  await open("#/backups");
  const downloading = page.waitForEvent("download");
  await page.getByRole("button", { name: "Make and download" }).click();
  const download = await downloading;
  assert.match(download.suggestedFilename(), /^tidelock-.*\.backup$/);
  await page.getByText("Saved as tidelock-").waitFor();
  const file = await readFile(await download.path());
  const choose = (name, buffer) => page.getByLabel("Backup file").setInputFiles({ name,
    mimeType: "application/octet-stream", buffer });
  await choose("whole.backup", file);
  await page.getByText("whole.backup is an intact backup").waitFor();
  const damaged = Buffer.from(file);
  damaged[damaged.length >> 1] ^= 1;
  await choose("damaged.backup", damaged);
  await page.getByText("the checksum of a chunk is wrong").waitFor();
  await choose("cut.backup", file.subarray(0, file.length - 1));
  await page.getByText("the file is cut short").waitFor();
  await choose("other.backup", Buffer.alloc(100));
  await page.getByText("it does not begin as a backup does").waitFor();
  await close();
});

test("a refused backup is explained", async () => {
  const { page, open, expectStatus, close } = await openPage(browser, node);
  const problem = { type: "https://tidelock.dev/problems/no-snapshot", title: "No snapshot", status: 503,
    detail: "shard 1: <b>down</b>" };
  await page.route("**/v1/backup", (route) => route.fulfill({ status: 503,
    contentType: "application/problem+json", json: problem }));
  expectStatus(503);
  await open("#/backups");
  await page.getByRole("button", { name: "Make and download" }).click();
  await page.getByRole("alert").getByText("shard 1: <b>down</b>").waitFor();
  await close();
});

test("axe finds nothing", async () => {
  await axeEverywhere(browser, node, "#/backups", (page) => page.getByRole("button",
    { name: "Make and download" }).waitFor());
});
