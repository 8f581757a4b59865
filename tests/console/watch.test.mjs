// The Watch screen: changes of keys as they happen, pause, and the readers of a configuration.
import assert from "node:assert/strict";
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

const put = (key, value) => node.api("PUT", `/v1/keys/${encodeURIComponent(key)}`, value);

test("changes appear as they happen, and a pause holds them back without losing one", async () => {
  const root = uniqueName("watch");
  const { page, open, close } = await openPage(browser, node);
  await open("#/watch");
  await page.getByLabel("Keys that begin with").fill(`${root}/`);
  await page.getByRole("button", { name: "Watch" }).click();
  await page.getByText("live", { exact: true }).waitFor();
  await put(`${root}/<script>globalThis.hacked=1</script>`, "<img src=x onerror=globalThis.hacked=1> \u202E");
  await page.getByRole("link", { name: "<script>globalThis.hacked=1</script>" }).waitFor();
  await page.locator(".table .control-character").getByText("U+202E").waitFor();
  await page.getByRole("button", { name: "Pause" }).click();
  await put(`${root}/two`, "2");
  await node.api("DELETE", `/v1/keys/${encodeURIComponent(`${root}/two`)}`);
  await page.getByText(/Paused\. [12] changes? since\./).waitFor();
  assert.equal(await page.getByRole("link", { name: `${root}/two` }).count(), 0);
  await page.getByRole("button", { name: "Go on" }).click();
  await page.getByRole("row").filter({ hasText: "deleted" }).getByRole("link",
    { name: `${root}/two` }).waitFor();
  assert.equal(await page.evaluate(() => globalThis.hacked), undefined);
  await page.getByRole("link", { name: "<script>" }).click();
  await page.getByRole("textbox", { name: "Value" }).waitFor();
  await close();
});

test("the readers of a container are listed with their labels", async () => {
  const namespace = uniqueName("readers");
  await node.api("POST", `/api/namespaces/${namespace}`, {});
  await node.api("POST", `/api/namespaces/${namespace}/pairs/timeout`, { value: 1 });
  await node.api("POST", `/api/namespaces/${namespace}/containers/app`, { fields: [{ key: "timeout",
    value: "timeout" }] });
  const controller = new AbortController();
  const watch = await fetch(`${node.url}/api/namespaces/${namespace}/containers/app/watch?label=%3Cb%3Ehost-1`,
    { signal: controller.signal });
  assert.equal(watch.status, 200);
  const { page, open, close } = await openPage(browser, node);
  await open("#/watch/readers");
  await page.getByLabel("Namespace").fill(namespace);
  await page.getByLabel("Container (optional)").fill("app");
  await page.getByRole("button", { name: "Show readers" }).click();
  await page.getByText("1 client reads it now.").waitFor();
  await page.getByText("<b>host-1").waitFor();
  controller.abort();
  await close();
});

test("axe finds nothing in changes and in readers", async () => {
  const root = uniqueName("axe");
  const opened = await openPage(browser, node);
  await opened.open(`#/watch/keys?prefix=${root}`);
  await opened.page.getByText("live", { exact: true }).waitFor();
  await put(root, "value");
  await opened.page.getByRole("link", { name: root }).waitFor();
  await opened.axe();
  await opened.close();
  await axeEverywhere(browser, node, "#/watch/readers", (page) =>
    page.getByText("Which namespace?").waitFor());
});
