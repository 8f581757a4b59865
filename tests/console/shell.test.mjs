// The shell: signing in and out, what grants allow, a session that ends, unknown routes, the skip link.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { openPage, startBrowser, startNode } from "./lib.mjs";

// Requiring authentication would shut the other users of a development node out.
const skip = process.env.CONSOLE_DEV ? "needs a node of its own" : false;

let node;
let browser;
const tokens = {};
const button = (page, name) => page.getByRole("button", { name, exact: true });

async function issue(principal) {
  tokens[principal] = await node.api("POST", "/v1/auth/tokens", { principal }, { token: tokens.root?.token });
}

before(async () => {
  if (skip) return;
  [node, browser] = await Promise.all([startNode(), startBrowser()]);
  await node.api("POST", "/api/namespaces/web/pairs/port?create=true", { value: 80 });
  await node.api("PUT", "/v1/auth/principals/root", { roles: ["admin"] });
  await node.api("PUT", "/v1/auth/roles/reader", { grants: ["read config:web"] });
  await node.api("PUT", "/v1/auth/principals/rita", { roles: ["reader"] });
  await issue("root");
  await issue("rita");
  await node.api("PUT", "/v1/auth", { required: true }, { token: tokens.root.token });
});
after(async () => {
  await browser?.close();
  await node?.stop();
});

async function signIn(opened, token) {
  await opened.page.getByLabel("Token").fill(token);
  await button(opened.page, "Sign in").click();
}

test("a wrong token is refused near its field, a right one signs in, signing out ends it", { skip }, async () => {
  const opened = await openPage(browser, node);
  opened.expectStatus(401);
  await opened.open("#/config/web");
  await signIn(opened, "tdl_wrong");
  await opened.page.getByRole("alert").waitFor();
  assert.equal(await opened.page.getByLabel("Token").inputValue(), "tdl_wrong");
  await opened.axe();
  await signIn(opened, tokens.root.token);
  await opened.page.getByRole("row", { name: /port/ }).waitFor();
  assert.equal(await opened.page.evaluate(() => document.cookie), "");
  await opened.page.reload();
  await opened.page.getByRole("row", { name: /port/ }).waitFor();
  await button(opened.page, "Sign out").click();
  await opened.page.getByLabel("Token").waitFor();
  await opened.close();
});

test("what the grants do not allow is not offered", { skip }, async () => {
  const opened = await openPage(browser, node);
  opened.expectStatus(401);
  await opened.open("#/config");
  await signIn(opened, tokens.rita.token);
  await opened.page.getByText("Your grants do not cover all namespaces").waitFor();
  const links = await opened.page.getByRole("navigation", { name: "Main" }).getByRole("link").allInnerTexts();
  assert.deepEqual(links, ["Configuration", "Watch"]);
  await opened.page.getByLabel("Namespace", { exact: true }).fill("web");
  await button(opened.page, "Open").click();
  await opened.page.getByRole("link", { name: "port" }).click();
  await opened.page.getByLabel("Value", { exact: true }).waitFor();
  assert.equal(await opened.page.getByLabel("Value", { exact: true }).isDisabled(), true);
  assert.equal(await button(opened.page, "Review and save").count(), 0);
  assert.equal(await button(opened.page, "Delete").count(), 0);
  await opened.close();
});

test("a session that ends keeps what was typed", { skip }, async () => {
  await issue("root");
  const opened = await openPage(browser, node);
  const { page } = opened;
  opened.expectStatus(401);
  await opened.open("#/config/web/pair/port");
  await signIn(opened, tokens.root.token);
  await page.getByLabel("Value", { exact: true }).fill("8080");
  await page.getByText("Accepted by the server").waitFor();
  const ended = tokens.root;
  await issue("root");
  await node.api("DELETE", `/v1/auth/tokens/${ended.id}`, undefined, { token: tokens.root.token });
  await button(page, "Review and save").click();
  await page.getByText("The session has ended").waitFor();
  await signIn(opened, tokens.root.token);
  await page.getByText("The session has ended").waitFor({ state: "detached" });
  assert.equal(await page.getByLabel("Value", { exact: true }).inputValue(), "8080");
  await opened.close();
});

test("a route that does not exist says so, and the skip link leads to the content", { skip }, async () => {
  const opened = await openPage(browser, node);
  opened.expectStatus(401);
  await opened.open("#/nothing");
  await signIn(opened, tokens.root.token);
  await opened.page.getByText("There is no such page").waitFor();
  await opened.page.locator(".skip-link").focus();
  await opened.page.keyboard.press("Enter");
  assert.equal(await opened.page.evaluate(() => document.activeElement.id), "content");
  await opened.close();
});
