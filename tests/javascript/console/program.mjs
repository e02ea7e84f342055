// The program with the console, started on free ports and an own folder, and a browser to look at it with.

import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

export const ROOT = fileURLToPath(new URL("../../..", import.meta.url));
const PROGRAM = join(ROOT, "target/debug/polyshard");
const SHOTS = join(ROOT, "target/screenshots");
const BROWSERS = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
export const TOKEN = "polyshard";

// All doors that this program has, as its configuration names them.
function doorNames() {
  const shown = execFileSync(PROGRAM, ["config", "show", "--json"], { encoding: "utf8" });
  return [...shown.matchAll(/"(\w+)\.listen"/g)].map(([, name]) => name);
}

// A server; `stop` ends it in order and removes its folder.
export async function serve({ folder, env = {}, port = 0, config = [] } = {}) {
  const data = folder ?? mkdtempSync(join(tmpdir(), "polyshard-console-"));
  const doors = doorNames().map((name) => [`POLYSHARD__${name.toUpperCase()}__LISTEN`, "127.0.0.1:0"]);
  const program = spawn(PROGRAM, ["up", "--data", join(data, "data"), ...config], {
    env: {
      ...process.env,
      ...Object.fromEntries(doors),
      POLYSHARD__ADMIN__LISTEN: `127.0.0.1:${port}`,
      ...env,
    },
    stdio: ["ignore", "pipe", "pipe"],
  });
  const said = [];
  program.stderr.on("data", (text) => said.push(text.toString()));
  const ended = once(program, "exit");
  const addresses = {};
  const ready = (async () => {
    for await (const line of createInterface(program.stdout)) {
      const [name, address] = line.trim().split(/\s+/);
      if (address?.includes("://")) addresses[name] = address;
      if (line.startsWith("ready")) return true;
    }
    return false;
  })();
  if (!(await ready)) throw new Error(`the program does not start:\n${said.join("")}`);
  program.stdout.resume();
  const url = addresses.admin;
  async function ask(path, body) {
    const response = await fetch(url + path, {
      method: body === undefined ? "GET" : "POST",
      headers: { authorization: `Bearer ${env.POLYSHARD__ADMIN__TOKEN ?? TOKEN}` },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`${path}: ${response.status} ${text}`);
    return text === "" || response.headers.get("content-type")?.startsWith("text") ? text : JSON.parse(text);
  }
  async function kill() {
    program.kill("SIGKILL");
    await ended;
  }
  async function stop() {
    program.kill("SIGTERM");
    await ended;
    rmSync(data, { recursive: true, force: true });
  }
  return { url, addresses, ask, stop, kill, data, log: said };
}

// A browser, and pages that fail the test if a script fails or the policy is broken.
export async function browse() {
  const executablePath = BROWSERS.find(existsSync);
  if (!executablePath) throw new Error("no Chromium was found: run scripts/setup-test.sh");
  const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu"] });
  async function page(options = {}) {
    const context = await browser.newContext({ viewport: { width: 1280, height: 860 }, ...options });
    const tab = await context.newPage();
    const faults = [];
    tab.on("pageerror", (error) => faults.push(String(error)));
    tab.on("console", (message) => {
      if (message.type() === "error" && !/Failed to load resource|net::ERR/.test(message.text())) {
        faults.push(message.text());
      }
    });
    return Object.assign(tab, { faults });
  }
  return { page, close: () => browser.close() };
}

export async function shot(page, name) {
  mkdirSync(SHOTS, { recursive: true });
  await page.screenshot({ path: join(SHOTS, `${name}.png`), fullPage: true });
}
