// Configuration: from nothing to a rollback, drafts, conflicts, secrets, environments, and axe on each page.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { axeEverywhere, eventually, openPage, startBrowser, startNode, uniqueName } from "./lib.mjs";

let node;
let browser;
before(async () => { [node, browser] = await Promise.all([startNode(), startBrowser()]); });
after(async () => {
  await browser?.close();
  await node?.stop();
});

const root = (namespace) => `/api/namespaces/${encodeURIComponent(namespace)}`;
const route = (...parts) => `#/config/${parts.map(encodeURIComponent).join("/")}`;
const file = (text, name = "app.yaml") => ({ name, mimeType: "text/yaml", buffer: Buffer.from(text) });
const button = (page, name) => page.getByRole("button", { name, exact: true });
const dialog = (page) => page.getByRole("dialog");

async function seed(start, document = "server:\n  port: 8080\n") {
  const namespace = uniqueName(start);
  await node.api("POST", `${root(namespace)}/containers/app/import?format=yaml&create=true`, document);
  return namespace;
}

async function edit(page, text) {
  await page.getByLabel("Value", { exact: true }).fill(text);
}

async function publish(page, message) {
  await button(page, "Review and save").click();
  await dialog(page).getByLabel("Message: why").fill(message);
  await dialog(page).getByRole("button", { name: "Publish", exact: true }).click();
  await dialog(page).waitFor({ state: "detached" });
}

test("from nothing: import a file, change a value, review, publish, see it in history, roll back",
  async () => {
  const namespace = uniqueName("main");
  const opened = await openPage(browser, node);
  const { page } = opened;
  opened.expectStatus(404); // The import asks whether the namespace exists.
  await opened.open("#/config");
  await button(page, "Import a file").first().click();
  await page.getByLabel(/^File/).setInputFiles(file("server:\n  port: 8080\n  hosts: [a, b]\n"));
  await page.getByLabel("Namespace", { exact: true }).fill(namespace);
  await button(page, "Show what changes").click();
  await dialog(page).getByText('"port": 8080').waitFor();
  await dialog(page).getByLabel("Your name").fill("ann");
  await dialog(page).getByLabel("Message: why").fill("first version");
  await button(page, "Publish").click();
  await page.getByRole("heading", { level: 1, name: /app/ }).waitFor();
  assert.match(await page.getByLabel("Document", { exact: true }).inputValue(), /port: 8080/);

  await opened.open(route(namespace, "pair", "app.server.port"));
  await page.getByText("1 container:").waitFor();
  await edit(page, "8081");
  await page.getByText("Accepted by the server").waitFor();
  const effect = page.getByRole("region", { name: "Effect of the change" });
  assert.equal(await effect.locator(".diff-removed").innerText().then((text) =>
    text.includes('"port": 8080')), true);
  assert.equal(await effect.locator(".diff-added").innerText().then((text) => text.includes('"port": 8081')),
    true);
  await publish(page, "another port");
  await page.getByText("Unchanged").waitFor();

  await opened.open(`${route(namespace)}?tab=history`);
  const entries = page.getByRole("list", { name: "Revisions" }).locator("> li");
  await entries.filter({ hasText: "another port" }).waitFor();
  assert.match(await entries.first().innerText(), /^2[\s\S]*ann[\s\S]*another port/);
  await page.getByRole("button", { name: "Compare with the newest: revision 1" }).click();
  await page.getByText("int 8081").waitFor();
  await page.getByRole("button", { name: "Roll back to this: revision 1" }).click();
  await dialog(page).locator(".diff-added", { hasText: '"port": 8080' }).waitFor();
  await button(page, "Publish").click();
  await entries.filter({ hasText: "rolled back to revision 1" }).waitFor();
  assert.equal((await node.api("GET", `${root(namespace)}/pairs/app.server.port`)).data.value, 8080);
  await opened.close();
});

test("the server checks a value while it is typed, and a refused value stays", async () => {
  const namespace = await seed("check");
  const opened = await openPage(browser, node);
  const { page } = opened;
  opened.expectStatus(400, 409, 413);
  await opened.open(route(namespace, "pair", "app.server.port"));
  await edit(page, "eighty");
  await page.getByText("Not a whole number.").waitFor();
  assert.equal(await button(page, "Review and save").isDisabled(), true);
  await page.getByLabel("Type").selectOption("string");
  await page.getByText("Accepted by the server").waitFor();
  await page.getByLabel("Type").selectOption("duration");
  await page.getByRole("alert").getByText(/duration/).waitFor();
  await page.getByLabel("Type").selectOption("string");
  await page.getByLabel("Value", { exact: true }).fill("x".repeat(1024 * 1024));
  await page.getByRole("alert").getByText(/64 KiB|65.?536|bytes/i).waitFor();
  assert.equal((await page.getByLabel("Value", { exact: true }).inputValue()).length, 1024 * 1024);
  // The edit outlives another page.
  await page.getByRole("link", { name: "Configuration" }).first().click();
  await page.getByRole("heading", { level: 1, name: "Configuration" }).waitFor();
  await page.goBack();
  assert.equal((await page.getByLabel("Value", { exact: true }).inputValue()).length, 1024 * 1024);
  await button(page, "Discard edit").click();
  await page.getByText("Unchanged").waitFor();
  await opened.close();
});

test("two pages save the same pair: the second one sees base, theirs and yours", async () => {
  const namespace = await seed("conflict");
  const first = await openPage(browser, node);
  const second = await openPage(browser, node);
  second.expectStatus(409);
  for (const opened of [first, second]) await opened.open(route(namespace, "pair", "app.server.port"));
  await edit(first.page, "9001");
  await edit(second.page, "9002");
  await publish(first.page, "first");
  await button(second.page, "Review and save").click();
  await button(second.page, "Publish").click();
  await second.page.getByText("Somebody else has changed it").waitFor();
  const column = (name) => second.page.getByRole("region", { name, exact: true });
  assert.equal(await column("Base").innerText(), "8080");
  assert.equal(await column("Theirs").innerText(), "9001");
  assert.equal(await second.page.getByLabel("Yours", { exact: true }).inputValue(), "9002");
  await second.axe();
  await second.page.getByLabel("Yours", { exact: true }).fill("9003");
  await button(second.page, "Continue with this").click();
  assert.equal(await second.page.getByLabel("Value", { exact: true }).inputValue(), "9003");
  await publish(second.page, "both agree");
  assert.equal((await node.api("GET", `${root(namespace)}/pairs/app.server.port`)).data.value, 9003);
  await first.close();
  await second.close();
});

test("a change elsewhere in the namespace is shown again, and is no conflict", async () => {
  const namespace = await seed("moved");
  const opened = await openPage(browser, node);
  const { page } = opened;
  opened.expectStatus(409);
  await opened.open(route(namespace, "pair", "app.server.port"));
  await edit(page, "9001");
  await button(page, "Review and save").click();
  await node.api("POST", `${root(namespace)}/pairs/other`, { value: 1 });
  await dialog(page).getByLabel("Message: why").fill("kept");
  await button(page, "Publish").click();
  await page.getByText("The namespace was changed meanwhile").waitFor();
  assert.equal(await dialog(page).getByLabel("Message: why").inputValue(), "kept");
  await button(page, "Publish").click();
  await dialog(page).waitFor({ state: "detached" });
  assert.equal((await node.api("GET", `${root(namespace)}/pairs/app.server.port`)).data.value, 9001);
  await opened.close();
});

test("a protected namespace: draft, comment, approval by another, publication", async () => {
  const namespace = await seed("draft");
  await node.api("POST", `${root(namespace)}/protection`, { protected: true });
  const opened = await openPage(browser, node);
  const { page } = opened;
  opened.expectStatus(409);
  await opened.open(route(namespace, "pair", "app.server.port"));
  await edit(page, "7000");
  await button(page, "Review and save").click();
  await dialog(page).getByText("This namespace is protected").waitFor();
  await dialog(page).getByLabel("Name of the draft").fill("port");
  await dialog(page).getByLabel("Your name").fill("ann");
  await button(page, "Add to the draft").click();
  await page.getByRole("heading", { level: 1, name: /Draft/ }).waitFor();
  await page.locator(".diff-added", { hasText: '"port": 7000' }).waitFor();
  assert.equal(await button(page, "Publish").isDisabled(), true);
  assert.equal(await button(page, "Approve").isDisabled(), true);
  await page.getByLabel("Comment", { exact: true }).fill("why 7000?");
  await button(page, "Comment").click();
  await page.getByText("why 7000?").waitFor();
  await page.getByLabel("Your name").first().fill("bob");
  await button(page, "Approve").click();
  await page.getByText("✓").waitFor();
  await button(page, "Publish").click();
  await eventually(async () => {
    const { data } = await node.api("GET", `${root(namespace)}/pairs/app.server.port`);
    return data.value === 7000;
  }, "the draft is published");
  await page.getByText("approved by").waitFor();
  await opened.close();
});

test("a canary shows a draft to labels first, and is withdrawn", async () => {
  const namespace = await seed("canary");
  await node.api("POST", `${root(namespace)}/pairs/app.server.port?draft=next&author=ann`, { value: 7000 });
  const opened = await openPage(browser, node);
  const { page } = opened;
  await opened.open(route(namespace, "draft", "next"));
  await page.getByLabel("Labels", { exact: true }).fill("web-1, api-*");
  await button(page, "Begin the canary").click();
  await page.getByText("These readers see this draft now").waitFor();
  const early = await fetch(`${node.url}${root(namespace)}/containers/app/dl?label=web-1`);
  assert.deepEqual(await early.json(), { server: { port: 7000 } });
  await opened.open(route(namespace));
  await page.getByText("A canary is open").waitFor();
  await page.getByRole("link", { name: "Open its draft" }).click();
  await button(page, "Withdraw the canary").click();
  await button(page, "Begin the canary").waitFor();
  await opened.close();
});

test("a secret is masked, is revealed on request, and is replaced", async () => {
  const namespace = uniqueName("secret");
  await node.api("POST", `${root(namespace)}/pairs/password?create=true`,
    { value: "hunter2", type: "secret" });
  const opened = await openPage(browser, node);
  const { page } = opened;
  await opened.open(route(namespace, "pair", "password"));
  await button(page, "Reveal").waitFor();
  assert.equal((await page.content()).includes("hunter2"), false);
  await button(page, "Reveal").click();
  await page.getByText("hunter2").waitFor();
  await button(page, "Hide").click();
  await edit(page, "correct horse");
  await publish(page, "leaked");
  const revealed = await node.api("GET", `${root(namespace)}/pairs/password?reveal=true`);
  assert.equal(revealed.data.value, "correct horse");
  await opened.close();
});

test("environments: an override, the comparison, and taking it over", async () => {
  const tag = uniqueName("env");
  const [base, prod] = [`{${tag}}/base`, `{${tag}}/prod`];
  await node.api("POST", `${root(base)}/containers/app/import?format=json&create=true`,
    { port: 1, zone: "west" });
  await node.api("POST", root(prod));
  const opened = await openPage(browser, node);
  const { page } = opened;
  await opened.open(`${route(prod)}?tab=environments`);
  await page.getByLabel(/^Parents/).fill(base);
  await button(page, "Review the parents").click();
  await button(page, "Publish").click();
  await page.getByText("2 pairs, 1 container").waitFor();
  await opened.open(route(prod, "pair", "app.port"));
  await page.getByText("Saving here sets an own value").waitFor();
  await edit(page, "2");
  await publish(page, "own port");
  await opened.open(`${route(base)}?tab=environments&with=${encodeURIComponent(prod)}`);
  await page.locator(".diff-added", { hasText: "2" }).waitFor();
  await page.getByRole("button", { name: "Take over 1 item" }).click();
  await dialog(page).getByText(prod).first().waitFor();
  await button(page, "Publish").click();
  await page.getByText("Both have the same content").waitFor();
  assert.equal((await node.api("GET", `${root(base)}/pairs/app.port`)).data.value, 2);
  await opened.close();
});

test("a container: document, fields, schema and who wrote what", async () => {
  const namespace = await seed("container");
  const opened = await openPage(browser, node);
  const { page } = opened;
  opened.expectStatus(400);
  await opened.open(route(namespace, "container", "app"));
  await page.getByLabel("Document", { exact: true }).fill("server:\n  port: 8080\n  name: web\n");
  await page.locator(".diff-added", { hasText: '"name": "web"' }).waitFor();
  await publish(page, "a name");
  await page.getByRole("link", { name: "Who wrote what" }).click();
  await page.getByRole("row", { name: /server.name/ }).getByText("a name").waitFor();
  await page.getByRole("link", { name: "Schema" }).click();
  await page.getByLabel("Schema", { exact: true }).fill(
    '{"properties":{"server":{"properties":{"port":{"maximum":9000}}}}}');
  await publish(page, "bounds");
  await opened.open(route(namespace, "pair", "app.server.port"));
  await edit(page, "9001");
  await page.getByRole("alert").getByText(/would violate its schema/).waitFor();
  await button(page, "Discard edit").click();
  await opened.open(`${route(namespace, "container", "app")}?view=fields`);
  await button(page, "Add a field").click();
  await page.getByLabel("Field 2", { exact: true }).fill("copy");
  await page.getByLabel("The key of a pair.").last().fill("app.server.port");
  await page.locator(".diff-added", { hasText: '"copy"' }).waitFor();
  await publish(page, "a copy");
  await opened.close();
});

test("with the keyboard alone: find a pair, change it, publish it", async () => {
  const namespace = await seed("keyboard");
  const opened = await openPage(browser, node);
  const { page } = opened;
  await opened.open(route(namespace));
  const filter = page.getByLabel("Filter by key or value");
  await filter.waitFor();
  await filter.focus();
  await page.keyboard.type("server.port");
  await page.getByText("1 of 1 pair").waitFor();
  await page.waitForURL(/filter=server\.port/); // A reload or a shared link shows the same.
  await page.keyboard.press("Tab"); // the frame of the table, which scrolls
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await page.getByLabel("Value", { exact: true }).waitFor();
  await page.keyboard.press("Tab");
  for (let i = 0; i < 40 && !await page.getByLabel("Value",
    { exact: true }).evaluate((field) => field === document.activeElement); i += 1) {
    await page.keyboard.press("Tab");
  }
  await page.keyboard.press("Control+A");
  await page.keyboard.type("8082");
  await page.getByText("Accepted by the server").waitFor();
  while (!await button(page, "Review and save").evaluate((field) =>
    field === document.activeElement)) await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await dialog(page).getByText('"port": 8082').waitFor();
  while (!await button(page, "Publish").evaluate((field) =>
    field === document.activeElement)) await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await dialog(page).waitFor({ state: "detached" });
  assert.equal((await node.api("GET", `${root(namespace)}/pairs/app.server.port`)).data.value, 8082);
  await opened.close();
});

test("axe finds nothing in light and dark at 375 and 1440 px", async () => {
  const namespace = await seed("axe");
  await node.api("POST", `${root(namespace)}/pairs/app.server.port?message=moved`, { value: 8081 });
  await node.api("POST", `${root(namespace)}/pairs/app.server.port?draft=next&author=ann`, { value: 7000 });
  const text = (name) => (page) => page.getByText(name).first().waitFor();
  const field = (name) => (page) => page.getByLabel(name).first().waitFor();
  const pages = [
    ["#/config", text(namespace)],
    [route(namespace), text("app.server.port")],
    [`${route(namespace)}?tab=containers`, field("Filter by container or field")],
    [`${route(namespace)}?tab=history&from=1&to=2`, text("int 8081")],
    [`${route(namespace)}?tab=environments`, text("set here")],
    [`${route(namespace)}?tab=settings`, text("not protected")],
    [route(namespace, "pair", "app.server.port"), text("1 container:")],
    [route(namespace, "container", "app"), field("Document")],
    [`${route(namespace, "container", "app")}?view=fields`, text("Add a field")],
    [route(namespace, "draft", "next"), text("Begin the canary")],
  ];
  for (const [hash, ready] of pages) await axeEverywhere(browser, node, hash, ready);
});
