// The Access screen: roles, principals and tokens, the two questions, and the way to required tokens and
// back.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { axeEverywhere, openPage, startBrowser, startNode } from "./lib.mjs";

let node;
let browser;
before(async () => {
  [node, browser] = await Promise.all([startNode(), startBrowser()]);
});
after(async () => {
  await browser.close();
  await node.stop();
});

const dialog = (page) => page.getByRole("dialog");

async function createToken(page, principal) {
  await page.getByRole("link", { name: /^Tokens/ }).click();
  await page.getByRole("button", { name: "New token" }).click();
  await dialog(page).getByLabel("Principal").selectOption(principal);
  await dialog(page).getByRole("button", { name: "Create" }).click();
  const token = await dialog(page).getByLabel("Token").inputValue();
  assert.match(token, /^tdl_/);
  await dialog(page).getByRole("button", { name: "Done" }).click();
  return token;
}

async function createPrincipal(page, name, role) {
  await page.getByRole("link", { name: /^Principals/ }).click();
  await page.getByRole("button", { name: "New principal" }).click();
  await dialog(page).getByLabel("Name", { exact: true }).fill(name);
  await dialog(page).getByRole("checkbox", { name: role, exact: true }).check();
  await dialog(page).getByRole("button", { name: "Save" }).click();
  await page.getByRole("rowheader", { name, exact: true }).waitFor();
}

test("a role, a principal and a token are made, and the questions are answered from them", async () => {
  const { page, open, close } = await openPage(browser, node);
  await open("#/access/roles");
  await page.getByRole("button", { name: "New role" }).click();
  await dialog(page).getByLabel("Name", { exact: true }).fill("shop");
  await dialog(page).getByLabel("Grants, one a line").fill("write keys:shop/\nnonsense");
  await dialog(page).getByText("“nonsense” is not a grant.").waitFor();
  assert.ok(await dialog(page).getByRole("button", { name: "Save" }).isDisabled());
  await dialog(page).getByLabel("Grants, one a line").fill("read keys:shop/\nwrite keys:shop/");
  await dialog(page).getByRole("button", { name: "Save" }).click();
  await page.getByRole("rowheader", { name: "shop", exact: true }).waitFor();
  await createPrincipal(page, "shop", "shop");
  await createPrincipal(page, "root", "admin");
  await createToken(page, "shop");

  await page.getByRole("link", { name: "Who may what?" }).click();
  await page.getByLabel("Key", { exact: true }).fill("shop/1");
  await page.getByText("2 principals may.").waitFor();
  await page.getByLabel("Key", { exact: true }).fill("other/1");
  await page.getByText("1 principal may.").waitFor();
  await page.getByLabel("Principal", { exact: true }).selectOption("shop");
  await page.getByText("change keys that begin with “shop/”").waitFor();
  await page.reload();
  await page.getByText("1 principal may.").waitFor();
  await close();
});

test("a name that the server refuses keeps the input", async () => {
  const { page, open, expectStatus, close } = await openPage(browser, node);
  await open("#/access");
  await page.getByRole("button", { name: "New principal" }).click();
  await dialog(page).getByLabel("Name", { exact: true }).fill("<script>alert(1)</script>");
  expectStatus(400);
  await dialog(page).getByRole("button", { name: "Save" }).click();
  await dialog(page).getByRole("alert").getByText("the name of a role or a principal").waitFor();
  assert.equal(await dialog(page).getByLabel("Name", { exact: true }).inputValue(),
    "<script>alert(1)</script>");
  await page.keyboard.press("Escape");
  await close();
});

test("tokens are required, what a principal may not do is not offered, and nothing is required again", {
  skip: process.env.CONSOLE_DEV ? "it would lock out the other tests of a shared node" : false,
}, async () => {
  const { page, open, expectStatus, close } = await openPage(browser, node);
  expectStatus(401);
  await open("#/access");
  const root = await createToken(page, "root");
  const shop = await createToken(page, "shop");
  await page.getByRole("button", { name: "Require tokens…" }).click();
  await dialog(page).getByRole("button", { name: "Require" }).click();
  await page.locator("input[type=password]").fill("tdl_wrong");
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("alert").waitFor();
  await page.locator("input[type=password]").fill(root);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByText("Tokens are required").waitFor();

  await page.getByRole("button", { name: "Sign out" }).click();
  await page.locator("input[type=password]").fill(shop);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("link", { name: "Keys" }).waitFor();
  for (const hidden of ["Access", "Audit", "Backups", "Cluster", "Metrics", "Overview"]) {
    assert.equal(await page.getByRole("link", { name: hidden, exact: true }).count(), 0, hidden);
  }
  await open("#/keys?prefix=shop/&new=true");
  await page.getByRole("textbox", { name: "Key", exact: true }).fill("other/1");
  await page.getByText("Your grants do not allow to write this key.").waitFor();
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.locator("input[type=password]").fill(root);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("link", { name: "Access", exact: true }).click();
  await page.getByRole("button", { name: "Stop requiring…" }).click();
  await dialog(page).getByRole("button", { name: "Stop requiring" }).click();
  await page.getByText("Tokens are not required").waitFor();
  await close();
});

test("a token is rotated and deleted, and a role in use cannot be deleted", async () => {
  const { page, open, expectStatus, close } = await openPage(browser, node);
  await open("#/access/tokens");
  await page.getByRole("button", { name: /^Rotate/ }).first().click();
  await dialog(page).getByRole("button", { name: "Rotate" }).click();
  await dialog(page).getByText("Store it now").waitFor();
  await dialog(page).getByRole("button", { name: "Done" }).click();
  await page.getByText("2: rotated").first().waitFor();
  await open("#/access/roles");
  await page.getByRole("button", { name: "Delete shop" }).click();
  await dialog(page).getByLabel("Name of the role").fill("shop");
  expectStatus(409);
  await dialog(page).getByRole("button", { name: "Delete" }).click();
  await dialog(page).getByRole("alert").getByText("Role in use", { exact: true }).waitFor();
  await page.keyboard.press("Escape");
  await close();
});

test("axe finds nothing in each part", async () => {
  for (const part of ["principals", "roles", "tokens"]) {
    await axeEverywhere(browser, node, `#/access/${part}`, (page) => page.getByRole("button",
      { name: /^New / }).waitFor());
  }
  await axeEverywhere(browser, node, "#/access/questions?principal=root&name=a", (page) =>
    page.getByText(/may\.$/).waitFor());
});
