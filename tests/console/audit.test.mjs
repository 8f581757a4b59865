// The Audit screen: records that arrive, the filter in the address, pause and export.
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

const putRole = (name) => node.api("PUT", `/v1/auth/roles/${name}`, { grants: ["cluster:read"] });
const cell = (page, text) => page.getByRole("cell", { name: text, exact: true });

test("records are filtered by the address, followed, paused and exported", async () => {
  const name = uniqueName("role");
  await putRole(`${name}-1`);
  const { page, open, close } = await openPage(browser, node);
  await open(`#/audit?subject=${name}`);
  await cell(page, `${name}-1`).waitFor();
  await putRole(`${name}-2`);
  await cell(page, `${name}-2`).waitFor();
  await page.getByRole("button", { name: "Pause" }).click();
  await page.getByText("Paused: new records are not shown.").waitFor();
  await putRole(`${name}-3`);
  await node.api("DELETE", `/v1/auth/roles/${name}-1`);
  assert.equal(await cell(page, `${name}-3`).count(), 0);
  await page.getByRole("button", { name: "Follow" }).click();
  await cell(page, `${name}-3`).waitFor();
  await page.getByLabel("Action").selectOption("role.delete");
  await page.getByText(/^1 of /).waitFor();
  await page.reload();
  await page.getByText(/^1 of /).waitFor();
  const downloading = page.waitForEvent("download");
  await page.getByRole("button", { name: "Export" }).click();
  const download = await downloading;
  assert.match(download.suggestedFilename(), /^tidelock-audit-.*\.jsonl$/);
  const lines = (await readFile(await download.path(), "utf8")).trim().split("\n").map((line) =>
    JSON.parse(line));
  assert.deepEqual(lines.map(({ action, subject }) => [action, subject]), [["role.delete", `${name}-1`]]);
  await close();
});

test("records of others are shown as text", async () => {
  const { page, open, close } = await openPage(browser, node);
  const record = { sequence: 1, at_unix_ms: 0, caller: "principal",
    principal: "<script>globalThis.hacked=1</script>",
    action: "shard.add", subject: "\u202Eevil <img src=x onerror=globalThis.hacked=1>" };
  await page.route("**/v1/audit?*", (route) => route.fulfill({ json: { records: [record] } }));
  await open("#/audit");
  await cell(page, "<script>globalThis.hacked=1</script>").waitFor();
  await page.locator(".table .control-character").getByText("U+202E").waitFor();
  assert.equal(await page.evaluate(() => globalThis.hacked), undefined);
  await close();
});

test("axe finds nothing", async () => {
  await putRole(uniqueName("axe"));
  await axeEverywhere(browser, node, "#/audit", (page) => page.getByRole("row").nth(1).waitFor());
});
