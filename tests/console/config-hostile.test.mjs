// Configuration with hostile content: markup, scripts, bidi controls, long texts, and 10,000 pairs.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { axeEverywhere, eventually, openPage, startBrowser, startNode, uniqueName } from "./lib.mjs";

const MARKUP = "<img src=x onerror=alert(1)><script>alert(2)</script>";
const BIDI = "user\u202e gpj.exe\u2066";
const PAIRS = 9_990;

let node;
let browser;
let namespace;
const root = () => `/api/namespaces/${encodeURIComponent(namespace)}`;
const route = (...parts) => `#/config/${[namespace, ...parts].map(encodeURIComponent).join("/")}`;

before(async () => {
  [node, browser] = await Promise.all([startNode(), startBrowser()]);
  namespace = `${uniqueName("<b>hostile</b>")}/${BIDI}`;
  const pair = (key, value) => ({ pair: key, value });
  await node.api("POST", `${root()}/publish`,
    { create: true, author: MARKUP, message: `${MARKUP} ${BIDI}`, changes: [
    pair(MARKUP, MARKUP), pair(BIDI, BIDI), pair("a/b?c#d%2F&e=f", "path"), pair("long", "x".repeat(60_000)),
      pair("lines", "one\ntwo\u0000three"),
    { pair: "big", value: 1 }, { container: MARKUP,
      fields: [{ key: MARKUP, value: MARKUP }, { key: "bidi", value: BIDI },
      { key: "long", value: "long" }] },
  ] });
  const many = Array.from({ length: PAIRS },
    (_, i) => pair(`row-${String(i).padStart(5, "0")}`, `value ${i}`));
  await node.api("POST", `${root()}/publish`, { changes: many });
  await node.api("POST", `${root()}/pairs/big`, '{"value":9007199254740993}');
  await node.api("POST", `${root()}/pairs/long?draft=${encodeURIComponent(MARKUP)}&author=ann`,
    { value: MARKUP });
});
after(async () => {
  await browser?.close();
  await node?.stop();
});

test("names and values are shown as text, isolated, with their control characters", async () => {
  const opened = await openPage(browser, node);
  const { page } = opened;
  const pages = [["pair", MARKUP], ["pair", BIDI], ["pair", "a/b?c#d%2F&e=f"], ["container", MARKUP],
    ["draft", MARKUP]];
  for (const [kind, key] of pages) {
    await opened.open(route(kind, key));
    await page.getByRole("heading", { level: 1 }).locator("bdi").first().waitFor();
    await page.getByRole("tablist").or(page.getByRole("navigation")).first().waitFor();
    assert.equal(await page.locator("#app img:not([src='icon.svg']), #app script").count(), 0,
      `${kind} ${key}`);
  }
  await opened.open(route("pair", BIDI));
  await page.getByRole("heading", { level: 1 }).getByText("U+202E").waitFor();
  await opened.open(`${route()}?tab=history&from=1&to=2`);
  await page.getByText("and 4 more items").or(page.getByText("alert(2)")).first().waitFor();
  await opened.open(`#/config?q=${encodeURIComponent("alert(2)")}`);
  await page.getByRole("region", { name: "Matches" }).getByText("alert(2)").first().waitFor();
  await opened.close();
});

test("a number beyond the precision of JavaScript keeps its digits", async () => {
  const opened = await openPage(browser, node);
  await opened.open(route("pair", "big"));
  const value = opened.page.getByLabel("Value", { exact: true });
  assert.equal(await value.inputValue(), "9007199254740993");
  await value.fill("9007199254740995");
  await opened.page.getByText("9007199254740995").first().waitFor();
  await opened.close();
});

test("10,000 pairs: few rows are rendered, and the filter finds one", async (context) => {
  const opened = await openPage(browser, node);
  const { page } = opened;
  await opened.open(route());
  await page.getByText("9,996 of 9,996 pairs").waitFor();
  assert.ok(await page.locator("tbody tr").count() < 100);
  const frame = page.getByRole("region", { name: "pairs" });
  await frame.evaluate((element) => { element.scrollTop = element.scrollHeight; });
  await page.getByText("row-09989").waitFor();
  const measure = (text) => page.getByLabel("Filter by key or value").evaluate(async (field, value) => {
    const begin = performance.now();
    field.value = value;
    field.dispatchEvent(new Event("input", { bubbles: true }));
    await new Promise((resolve) => { requestAnimationFrame(() => setTimeout(resolve)); });
    return performance.now() - begin;
  }, text);
  const times = [];
  for (const text of ["row", "row-0", "row-09", "row-099", "row-0998", "row-09980"]) times.push(
    await measure(text));
  // The goal is 100 ms. Printed and not asserted: other processes on the machine count.
  context.diagnostic(`key strokes over 9,996 rows took ${times.map(Math.round)} ms`);
  await page.getByText("1 of 9,996 pairs").waitFor();
  await opened.close();
});

test("axe finds nothing in hostile content", async () => {
  const text = (name) => (page) => page.getByText(name).first().waitFor();
  await axeEverywhere(browser, node, route(), text("9,996 of 9,996 pairs"));
  await axeEverywhere(browser, node, route("pair", BIDI), text("U+202E"));
  await axeEverywhere(browser, node, route("draft", MARKUP), text("What it changes"));
});
