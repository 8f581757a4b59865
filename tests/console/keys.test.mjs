// The Keys screen: the main path, hostile names and values, conflicts, large values and many rows.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { axeEverywhere, eventually, openPage, startBrowser, startNode, uniqueName } from "./lib.mjs";

let node;
let browser;
before(async () => {
  [node, browser] = await Promise.all([startNode(), startBrowser()]);
});
after(async () => {
  await browser.close();
  await node.stop();
});

const address = (key) => `/v1/keys/${encodeURIComponent(key)}`;
const put = (key, value, query = "") => node.api("PUT", `${address(key)}${query}`, value);

async function read(key) {
  const answer = await fetch(node.url + address(key));
  return { status: answer.status, version: answer.headers.get("etag")?.replaceAll('"', ""),
    text: await answer.text() };
}

const link = (prefix, key) => {
  const query = new URLSearchParams(key === undefined ? { prefix } : { prefix, key });
  return `#/keys?${query.toString().replaceAll("+", "%20")}`;
};
const editor = (page) => page.getByRole("textbox", { name: "Value" });
const save = (page) => page.getByRole("button", { name: "Save", exact: true });

test("a key is found through folders, created, edited, saved and deleted", async () => {
  const root = uniqueName("main");
  await put(`${root}/a/1`, "one");
  await put(`${root}/a/2`, "two");
  await put(`${root}/top`, "top");
  const { page, open, close } = await openPage(browser, node);
  await open("#/keys");
  await page.getByLabel("Keys that begin with").fill(`${root}/`);
  await page.getByLabel("Keys that begin with").press("Enter");
  await page.getByText("1 folder and 1 key with 3 keys in all.").waitFor();
  await page.getByRole("link", { name: "Folder a/, 2 keys" }).click();
  await page.getByRole("link", { name: "1", exact: true }).click();
  await editor(page).fill("changed");
  await save(page).click();
  await page.getByText(`Saved ${root}/a/1 as version`).waitFor();
  assert.equal((await read(`${root}/a/1`)).text, "changed");

  await page.getByRole("link", { name: "New key" }).click();
  await page.getByRole("textbox", { name: "Key", exact: true }).fill(`${root}/a/3`);
  await editor(page).fill("three");
  await page.getByRole("button", { name: "Create" }).click();
  await page.getByRole("heading", { name: `${root}/a/3` }).waitFor();
  await page.getByText("3 keys.").waitFor();

  await page.getByRole("button", { name: "Delete…" }).click();
  const confirm = page.getByRole("dialog").getByRole("button", { name: "Delete" });
  assert.ok(await confirm.isDisabled(), "a key is deleted only once its name is typed");
  await page.getByLabel("Name of the key").fill(`${root}/a/3`);
  await confirm.click();
  await page.getByText("2 keys.").waitFor();
  assert.equal((await read(`${root}/a/3`)).status, 404);
  await close();
});

test("the address holds prefix, delimiter and key", async () => {
  const root = uniqueName("url");
  await put(`${root}:x:1`, "one");
  const { page, open, close } = await openPage(browser, node);
  await open("#/keys");
  await page.getByLabel("Folders end with").selectOption(":");
  await page.getByLabel("Keys that begin with").fill(`${root}:`);
  await page.getByRole("button", { name: "Show" }).click();
  await page.getByRole("link", { name: "Folder x:, 1 keys" }).click();
  await page.getByRole("link", { name: "1", exact: true }).click();
  await editor(page).waitFor();
  await page.reload();
  await editor(page).waitFor();
  assert.equal(await editor(page).inputValue(), "one");
  await page.goBack();
  await page.getByText("1 key.").waitFor();
  await page.goBack();
  await page.getByRole("link", { name: "Folder x:, 1 keys" }).waitFor();
  await close();
});

test("names and values with markup, control characters and other bytes are shown as text", async () => {
  const root = uniqueName("hostile");
  const names = ["<script>globalThis.hacked=1<", "<img src=x onerror=globalThis.hacked=1>", "\u202Egnp.exe",
    "a\u0000b\nc", " + %2F?#&"];
  for (const name of names) await put(`${root}/${name}`,
    `<script>globalThis.hacked=1</script> \u202E ${name}`);
  await node.api("PUT", `/v1/keys/${root}%2F%FF%FE`, "other bytes");
  const { page, open, axe, close } = await openPage(browser, node);
  await open(link(`${root}/`));
  await page.getByText("6 keys.").waitFor();
  assert.equal(await page.locator(".table .control-character").allInnerTexts().then((texts) =>
    texts.sort().join()), "U+0000,U+202E");
  for (const name of names) {
    await open(link(`${root}/`, `${root}/${name}`));
    await editor(page).waitFor();
    assert.ok((await editor(page).inputValue()).endsWith(name), JSON.stringify(name));
    await page.getByText("characters that cannot be seen").waitFor();
  }
  await page.getByRole("button", { name: "Show them" }).click();
  await page.locator(".unseen-text").getByText("U+202E").waitFor();
  await axe();
  await page.getByRole("row").filter({ hasText: "base64" }).getByRole("link").click();
  await page.getByRole("heading", { name: "base64" }).waitFor();
  assert.equal(await editor(page).inputValue(), "other bytes");
  assert.equal(await page.evaluate(() => globalThis.hacked), undefined);
  await close();
});

test("text, JSON and hex show the same bytes, and saving keeps what was not edited", async () => {
  const root = uniqueName("views");
  const json = '{"big":12345678901234567890,"ratio":1.0,"a":[1,2]}';
  await put(`${root}/json`, json);
  await put(`${root}/crlf`, "one\r\ntwo\r\n");
  await put(`${root}/binary`, Buffer.from([0, 255, 10]).toString("latin1"));
  await fetch(node.url + address(`${root}/binary`), { method: "PUT", body: new Uint8Array([0, 255, 10]) });
  const { page, open, close } = await openPage(browser, node);
  await open(link(`${root}/`, `${root}/json`));
  await editor(page).waitFor();
  assert.match(await editor(page).inputValue(), /^\{\n {2}"big": 12345678901234567890,\n {2}"ratio": 1\.0,/);
  assert.ok(await save(page).isDisabled(), "formatting is no edit");
  await page.getByRole("button", { name: "Text", exact: true }).click();
  assert.equal(await editor(page).inputValue(), json);
  await page.getByRole("button", { name: "JSON", exact: true }).click();
  await editor(page).fill("{");
  await page.getByRole("alert").getByText("This is not JSON").waitFor();
  await page.getByRole("button", { name: "Discard edits" }).click();

  await open(link(`${root}/`, `${root}/crlf`));
  await page.getByText("Lines end with CR LF").waitFor();
  await editor(page).fill("one\nthree\n");
  await save(page).click();
  await page.getByText("as version").waitFor();
  assert.equal((await read(`${root}/crlf`)).text, "one\r\nthree\r\n");

  await open(link(`${root}/`, `${root}/binary`));
  await page.getByText("not UTF-8 text").waitFor();
  assert.equal(await editor(page).inputValue(), "00 ff 0a");
  await editor(page).fill("00 ff 0a 0d");
  await save(page).click();
  await page.getByText("Size").locator("..").getByText("4 B").waitFor();
  const saved = await (await fetch(node.url + address(`${root}/binary`))).arrayBuffer();
  assert.deepEqual([...new Uint8Array(saved)], [0, 255, 10, 13]);
  await close();
});

test("the expiry of a key is kept by a save, and changed on request", async () => {
  const key = uniqueName("ttl");
  await put(key, "value", "?ttl=1h");
  const { page, open, close } = await openPage(browser, node);
  await open(link("", key));
  await editor(page).fill("edited");
  await save(page).click();
  await page.getByText("as version").first().waitFor();
  const kept = Number((await fetch(node.url + address(key))).headers.get("tidelock-ttl-ms"));
  assert.ok(kept > 3_000_000 && kept <= 3_600_000, `${kept} ms`);
  await page.getByLabel("Expires", { exact: true }).selectOption("never");
  await save(page).click();
  await eventually(async () => (await fetch(node.url + address(key))).headers.get("tidelock-ttl-ms") === null,
    "no expiry");
  await close();
});

test("two pages that save one key at once lose nothing", async () => {
  const key = uniqueName("conflict");
  await put(key, "line 1\nline 2\n");
  const first = await openPage(browser, node);
  const second = await openPage(browser, node, { theme: "dark" });
  await first.open(link("", key));
  await second.open(link("", key));
  await editor(first.page).fill("line 1\nfirst\n");
  await editor(second.page).fill("line 1\nsecond\n");
  await save(first.page).click();
  await first.page.getByText("as version").waitFor();
  second.expectStatus(412);
  await save(second.page).click();
  const conflict = second.page.getByRole("region", { name: /was saved while you edited/ });
  await conflict.getByText("first").waitFor();
  await conflict.getByText("second").waitFor();
  await second.axe();
  assert.equal(await editor(second.page).inputValue(), "line 1\nsecond\n");
  assert.equal((await read(key)).text, "line 1\nfirst\n");
  await editor(second.page).fill("line 1\nfirst\nsecond\n");
  await second.page.getByRole("button", { name: /Save yours over version/ }).click();
  await second.page.getByText("as version").waitFor();
  assert.equal((await read(key)).text, "line 1\nfirst\nsecond\n");

  await editor(first.page).fill("mine");
  await node.api("DELETE", address(key));
  first.expectStatus(412, 404);
  await save(first.page).click();
  await first.page.getByRole("button", { name: "Create the key again with yours" }).click();
  await eventually(async () => (await read(key)).text === "mine", "the key exists again");
  await first.close();
  await second.close();
});

test("edits outlive a visit to another screen, and creating never overwrites", async () => {
  const key = uniqueName("draft");
  await put(key, "old");
  const { page, open, expectStatus, close } = await openPage(browser, node);
  await open(link("", key));
  await editor(page).fill("not saved yet");
  await page.getByRole("link", { name: "Watch" }).click();
  await page.getByRole("heading", { name: "Watch" }).waitFor();
  await page.goBack();
  assert.equal(await editor(page).inputValue(), "not saved yet");
  await page.getByRole("button", { name: "Discard edits" }).click();
  assert.equal(await editor(page).inputValue(), "old");
  await open("#/keys?new=true");
  await page.getByRole("textbox", { name: "Key", exact: true }).fill(key);
  await editor(page).fill("another");
  expectStatus(412);
  await page.getByRole("button", { name: "Create" }).click();
  await page.getByText("The key exists already").waitFor();
  assert.equal(await editor(page).inputValue(), "another");
  assert.equal((await read(key)).text, "old");
  await close();
});

test("a value of 1 MiB is loaded on request, and 10,000 keys are shown", async (context) => {
  const root = uniqueName("large");
  await put(`${root}/value`, "x".repeat(1 << 20));
  for (let from = 0; from < 10_000; from += 1000) {
    const then = Array.from({ length: 1000 }, (_, at) =>
      ({ put: { key: `{${root}}/many/${String(from + at).padStart(5, "0")}`, val: "v" } }));
    await node.api("POST", "/v1/transactions", { then });
  }
  const { page, open, close } = await openPage(browser, node);
  await open(link(`${root}/`, `${root}/value`));
  await page.getByText("The value has 1 MiB").waitFor();
  await page.getByRole("button", { name: "Load it" }).click();
  await editor(page).waitFor();
  assert.equal((await editor(page).inputValue()).length, 1 << 20);

  await open(link(`{${root}}/many/`));
  await page.getByText("The first 1,000 keys; there are more.").waitFor();
  for (let rows = 2000; rows < 10_000; rows += 1000) {
    await page.getByRole("button", { name: "Load more" }).click();
    await page.getByText(`The first ${rows.toLocaleString("en")} keys; there are more.`).waitFor();
  }
  await page.getByRole("button", { name: "Load more" }).click();
  await page.getByText("10,000 keys.").waitFor();
  const table = page.getByRole("region", { name: "Folders and keys" });
  await table.evaluate((frame) => frame.scrollTo(0, frame.scrollHeight));
  await page.getByRole("link", { name: "09999" }).waitFor();
  assert.ok(await page.getByRole("row").count() < 120, "only rows in view are rendered");
  const slowest = await page.evaluate(async () => {
    const input = document.querySelector(".keys-search input");
    let slowestMs = 0;
    for (let typed = 0; typed < 20; typed += 1) {
      const start = performance.now();
      input.value += "x";
      input.dispatchEvent(new InputEvent("input", { bubbles: true }));
      await new Promise((resolve) => { requestAnimationFrame(() => setTimeout(resolve)); });
      slowestMs = Math.max(slowestMs, performance.now() - start);
    }
    return slowestMs;
  });
  // The goal is 100 ms. Printed and not asserted: other processes on the machine count.
  context.diagnostic(`the slowest key stroke over 10,000 rows took ${Math.round(slowest)} ms`);
  await close();
});

test("the keyboard alone opens a key and saves it", async () => {
  const root = uniqueName("keyboard");
  await put(`${root}/one`, "1");
  const { page, open, close } = await openPage(browser, node);
  await open(link(`${root}/`));
  const key = page.getByRole("link", { name: "one" });
  await key.waitFor();
  const tabTo = async (locator) => {
    for (let steps = 0; steps < 40; steps += 1) {
      if (await locator.evaluate((element) => element === document.activeElement).catch(() => false)) return;
      await page.keyboard.press("Tab");
    }
    assert.fail(`${locator} was not reached`);
  };
  await tabTo(key);
  await page.keyboard.press("Enter");
  await editor(page).waitFor();
  await tabTo(editor(page));
  await page.keyboard.press("ControlOrMeta+A");
  await page.keyboard.type("by keyboard");
  await tabTo(save(page));
  await page.keyboard.press("Enter");
  await page.getByText("as version").waitFor();
  assert.equal((await read(`${root}/one`)).text, "by keyboard");
  await close();
});

test("axe finds nothing in lists, in a key, and in the form of a new key", async () => {
  const root = uniqueName("axe");
  await put(`${root}/folder/a`, "a");
  await put(`${root}/json`, '{"a":1}');
  await axeEverywhere(browser, node, link(`${root}/`, `${root}/json`), (page) => editor(page).waitFor());
  await axeEverywhere(browser, node, link(`${root}/`), (page) => page.getByRole("link",
    { name: "json" }).waitFor());
  await axeEverywhere(browser, node, "#/keys?new=true", (page) => page.getByRole("button",
    { name: "Create" }).waitFor());
});
