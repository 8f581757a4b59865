// The Metrics screen: charts, the same as a table, and gaps that are named.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { axeEverywhere, openPage, startBrowser, startNode } from "./lib.mjs";

const NAMES = ["requests_per_s", "errors_per_s", "request_p50_ms", "request_p99_ms", "fsync_mean_ms",
  "apply_lag_entries",
  "memory_bytes", "connections", "watchers"];

/** An hour in which nothing was measured for the first ten minutes, nor for one minute later. */
const history = {
  node: 1,
  step_s: 10,
  end_unix_ms: Date.UTC(2026, 10, 26, 7, 0, 0),
  series: NAMES.map((name, at) => ({
    name,
    values: Array.from({ length: 360 }, (_, i) => (i < 60 || (i >= 200 && i < 206) || name === "watchers"
      ? null : i + at + 0.5)),
  })),
};

let node;
let browser;
before(async () => {
  [node, browser] = await Promise.all([startNode(), startBrowser()]);
});
after(async () => {
  await browser.close();
  await node.stop();
});

async function openMetrics(hash, options) {
  const opened = await openPage(browser, node, options);
  await opened.page.route("**/v1/metrics/history", (route) => route.fulfill({ json: history }));
  await opened.open(hash);
  return opened;
}

test("charts are drawn, and the table has the same numbers and gaps", async () => {
  const { page, axe, close } = await openMetrics("#/metrics");
  await page.getByText("66 values of 360 (11m) were not measured, and are gaps.").waitFor();
  await page.locator("canvas").first().waitFor();
  assert.equal(await page.locator("canvas").count(), 7);
  await page.getByRole("region", { name: "Requests", exact: true }).getByText("360",
    { exact: true }).waitFor();
  await axe();
  await page.getByRole("link", { name: "Table" }).click();
  const first = page.getByRole("row").nth(1);
  await first.getByText("360").first().waitFor();
  await first.getByText("gap").waitFor();
  await page.reload();
  await page.getByRole("row").nth(1).waitFor();
  await axe();
  await close();
});

test("the chart library is loaded only by this screen", async () => {
  const { page, open, close } = await openPage(browser, node);
  const loaded = [];
  page.on("request", (request) => loaded.push(request.url()));
  await open("#/overview");
  await page.getByText(/^Healthy: /).waitFor();
  assert.ok(!loaded.some((url) => url.includes("uplot")), loaded.join("\n"));
  await page.getByRole("link", { name: "Metrics" }).click();
  await page.getByText(/^One value for each 10 seconds/).or(page.getByText("Nothing measured yet")).waitFor();
  await close();
});

test("the node's own answer is shown", async () => {
  const { page, open, close } = await openPage(browser, node);
  await open("#/metrics");
  await page.getByText(/One value for each 10 seconds|Nothing measured yet/).waitFor();
  await close();
});

test("axe finds nothing", async () => {
  await axeEverywhere(browser, node, "#/metrics", (page) =>
    page.getByText(/One value for each|Nothing measured yet/).waitFor());
});
