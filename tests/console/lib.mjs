// What all console tests share: a real node, a real Chromium, and pages that fail on any error in the
// console.
//
// TIDELOCK names the binary (target/debug/tidelock by default). CONSOLE_DEV names a development server that
// serves the files and passes requests to the node at CONSOLE_NODE; then no node is started.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { randomBytes } from "node:crypto";
import { createServer } from "node:net";
import { once } from "node:events";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { AxeBuilder } from "@axe-core/playwright";
import { chromium } from "playwright-core";

const root = fileURLToPath(new URL("../..", import.meta.url));
const binary = process.env.TIDELOCK ?? path.join(root, "target/debug/tidelock");
const START_MS_MAX = 60_000;
export const EXPECT_MS_MAX = 15_000;

// Below the ephemeral range of Linux, so that no connection takes the port of a node that is down for a
// moment. Tests that may run at the same time have ports from 22000 on.
const PORTS = { first: 10_000, end: 22_000 };
let nextPort = PORTS.first + (process.pid * 211) % (PORTS.end - PORTS.first);

/** A port that nothing listens on. Each is given out once. */
async function freePort() {
  for (let attempt = PORTS.first; attempt < PORTS.end; attempt += 1) {
    const port = nextPort;
    nextPort = port + 1 < PORTS.end ? port + 1 : PORTS.first;
    const server = createServer().listen(port, "127.0.0.1");
    const isFree = await once(server, "listening").then(() => true, () => false);
    if (!isFree) continue;
    server.close();
    await once(server, "close");
    return port;
  }
  throw new Error("no port is free");
}

async function untilReady(url, process) {
  const end = Date.now() + START_MS_MAX;
  while (Date.now() < end) {
    assert.equal(process.exitCode, null, "the node stopped before it was ready");
    const answer = await fetch(`${url}/readyz`).catch(() => null);
    if (answer?.ok) return;
    await new Promise((resolve) => { setTimeout(resolve, 50); });
  }
  throw new Error(`the node was not ready after ${START_MS_MAX} ms`);
}

/** Starts the binary with flags, and waits until it is ready. */
async function startProcess(flags, url) {
  const child = spawn(binary, ["serve", ...flags],
    { stdio: ["ignore", "ignore", "inherit"], env: { ...process.env, TIDELOCK_LOG: "error" } });
  await untilReady(url, child);
  return child;
}

async function kill(child) {
  child.kill("SIGKILL");
  await once(child, "exit");
}

/**
 * Starts a node with a key for secrets: `{ url, ui, api, stop }`. `api(method, path, body)` returns parsed
 * JSON.
 */
export async function startNode(options = []) {
  if (process.env.CONSOLE_DEV) {
    const url = process.env.CONSOLE_DEV.replace(/\/ui\/?$/, "");
    return { url, ui: `${url}/ui/`, api: apiOf(url), stop: async () => {} };
  }
  const folder = await mkdtemp(path.join(tmpdir(), "tidelock-console-"));
  const keys = path.join(folder, "secret.keys");
  await writeFile(keys, `test:${randomBytes(32).toString("base64")}\n`, { mode: 0o600 });
  const [http, resp, peer] = [await freePort(), await freePort(), await freePort()];
  const url = `http://127.0.0.1:${http}`;
  const child = await startProcess(["--data-dir", path.join(folder, "data"), "--http", `127.0.0.1:${http}`,
    "--resp", `127.0.0.1:${resp}`, "--resp-cluster", "off", "--peer", `127.0.0.1:${peer}`,
    "--secret-key-file", keys, ...options], url);
  const stop = async () => {
    await kill(child);
    await rm(folder, { recursive: true, force: true });
  };
  return { url, ui: `${url}/ui/`, api: apiOf(url), stop };
}

/**
 * Starts a cluster: `{ nodes: [{ url, ui, api, kill, start }], stop }`. Always the binary, not a development
 * server.
 */
export async function startCluster(size) {
  const folder = await mkdtemp(path.join(tmpdir(), "tidelock-console-"));
  const ports = [];
  for (let at = 0; at < size; at += 1) ports.push([await freePort(), await freePort(), await freePort()]);
  const peers = ports.map(([, , peer]) => `127.0.0.1:${peer}`).join();
  const nodes = ports.map(([http, resp, peer], at) => {
    const url = `http://127.0.0.1:${http}`;
    const flags = ["--data-dir", path.join(folder, String(at)), "--http", `127.0.0.1:${http}`, "--resp",
      `127.0.0.1:${resp}`,
      "--resp-cluster", "off", "--peer", `127.0.0.1:${peer}`, "--peers", peers];
    let child;
    const start = async () => { child = await startProcess(flags, url); };
    return { url, ui: `${url}/ui/`, api: apiOf(url), start, kill: () => kill(child),
      isUp: () => child?.exitCode === null && !child.killed };
  });
  await Promise.all(nodes.map((node) => node.start()));
  const stop = async () => {
    await Promise.all(nodes.filter((node) => node.isUp()).map((node) => node.kill()));
    await rm(folder, { recursive: true, force: true });
  };
  return { nodes, stop };
}

const apiOf = (url) => async (method, address, body, { token } = {}) => {
  const answer = await fetch(url + address, {
    method,
    headers: token ? { authorization: `Bearer ${token}` } : {},
    body: body === undefined || typeof body === "string" ? body : JSON.stringify(body),
  });
  const text = await answer.text();
  assert.ok(answer.ok, `${method} ${address}: ${answer.status} ${text.slice(0, 300)}`);
  return text === "" ? null : JSON.parse(text);
};

/** A name that no earlier test has used, because a development node keeps its data. */
export const uniqueName = (start) => `${start}-${randomBytes(4).toString("hex")}`;

/** Starts Chromium. */
export const startBrowser = () => chromium.launch(
  { executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] });

/**
 * Opens a page: `{ page, open, axe, expectStatus, close }`. `close` fails if the console printed an error, a
 * script threw, or the content security policy was violated. `expectStatus(409)` says that a request may
 * answer so, and `isLossy` that requests may get no answer, because the node is killed.
 */
export async function openPage(browser, node,
  { theme = "light", width = 1440, height = 900, isLossy = false } = {}) {
  const context = await browser.newContext(
    { colorScheme: theme, viewport: { width, height }, acceptDownloads: true, reducedMotion: "reduce" });
  const page = await context.newPage();
  page.setDefaultTimeout(EXPECT_MS_MAX);
  const faults = [];
  const expected = new Set();
  page.on("pageerror", (error) => faults.push(`page error: ${error.stack ?? error}`));
  page.on("console", (message) => {
    const status = /Failed to load resource: the server responded with a status of (\d+)/.exec(
      message.text())?.[1];
    if (status && (expected.has(Number(status)) || (isLossy && status.startsWith("50")))) return;
    if (isLossy && message.text().includes("net::ERR_")) return;
    if (["error", "warning"].includes(message.type())) faults.push(
      `console: ${message.text()} ${message.location().url}`);
  });
  await page.addInitScript(() => {
    globalThis.cspReports = [];
    document.addEventListener("securitypolicyviolation", (event) => {
      globalThis.cspReports.push(
        `${event.violatedDirective}: ${event.blockedURI} ${event.sourceFile}:${event.lineNumber}`);
    });
  });
  const noFaults = async () => {
    const reports = await page.evaluate(() => globalThis.cspReports).catch(() => []);
    assert.deepEqual([...faults, ...reports], []);
  };
  return {
    page,
    open: (hash) => page.goto(`${node.ui}${hash}`),
    axe: () => axe(page),
    expectStatus: (...statuses) => statuses.forEach((status) => expected.add(status)),
    close: async () => {
      await noFaults();
      await context.close();
    },
  };
}

/** Fails on any finding of axe-core on the page as it is. The first check of a page brings axe into it. */
export async function axe(page, options = {}) {
  const isThere = await page.evaluate(() => "axe" in globalThis);
  // The legacy mode opens no second page, which costs seconds; the console has no frames.
  const { violations } = isThere ? await page.evaluate((run) => globalThis.axe.run(run), options)
    : await new AxeBuilder({ page }).setLegacyMode(true).analyze();
  const found = violations.map(({ id, nodes }) =>
    `${id}: ${nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(" | ")}`);
  assert.deepEqual(found, [], `axe at ${page.url()}`);
}

/** Checks a route with axe in light and dark, at 375 and 1440 px. `ready(page)` waits for its content. */
export async function axeEverywhere(browser, node, hash, ready) {
  const opened = await openPage(browser, node);
  await opened.open(hash);
  await ready(opened.page);
  for (const width of [1440, 375]) {
    await opened.page.setViewportSize({ width, height: 900 });
    const overflow = await opened.page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    assert.ok(overflow <= 0, `${hash} is ${overflow} px too wide at ${width} px`);
    await opened.page.emulateMedia({ colorScheme: "light" });
    await axe(opened.page);
    // Only colours depend on the theme.
    await opened.page.emulateMedia({ colorScheme: "dark" });
    await axe(opened.page, { runOnly: ["color-contrast"] });
  }
  await opened.close();
}

/** Waits until `check()` returns a true value, and returns it. */
export async function eventually(check, what) {
  const end = Date.now() + EXPECT_MS_MAX;
  for (;;) {
    const value = await check();
    if (value) return value;
    if (Date.now() > end) throw new Error(`not within ${EXPECT_MS_MAX} ms: ${what}`);
    await new Promise((resolve) => { setTimeout(resolve, 50); });
  }
}
