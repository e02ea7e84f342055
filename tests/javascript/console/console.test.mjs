// The console in a real browser: every page and action, by mouse and keyboard, on a wide and a narrow screen.
// E1, D3: screenshots are kept in target/screenshots.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { TableClient } from "@azure/data-tables";
import { ACCOUNT, KEY } from "../account.js";
import { AzureNamedKeyCredential } from "@azure/data-tables";
import { browse, serve, shot } from "./program.mjs";

let server;
let browser;
let page;

// A table of orders whose tenants are listed one by one; tenant `acme` gets the most requests.
const TENANTS = ["acme", "bolt", "cato", "dune", "echo", "flux"];
let orders;

before(async () => {
  [server, browser] = await Promise.all([serve(), browse()]);
  await server.ask("/v1/maps", { name: "users", kind: "hash", key: "bigint" });
  await server.ask("/v1/maps", { name: "tenants", kind: "list", key: "text" });
  const entries = TENANTS.map((key, at) => ({ range: { key }, shard: `s${1 + (at % 4)}` }));
  await server.ask("/v1/maps/tenants/changes", { add: { entries } });
  await server.ask("/v1/datasets/bind", { dataset: "table:orders", map: "tenants" });
  const credential = new AzureNamedKeyCredential(ACCOUNT, KEY);
  orders = new TableClient(`${server.addresses.table}/${ACCOUNT}`, "orders", credential, {
    allowInsecureConnection: true,
  });
  await orders.createTable();
  for (const [at, partitionKey] of TENANTS.entries()) {
    for (let row = 0; row < (at === 0 ? 60 : 8); row += 1) {
      await orders.createEntity({ partitionKey, rowKey: `${row}`, note: "x".repeat(100) });
    }
  }
  // On a map that hashes, the PartitionKey tells the key.
  await server.ask("/v1/datasets/bind", { dataset: "table:visits", map: "users" });
  const visits = new TableClient(`${server.addresses.table}/${ACCOUNT}`, "visits", credential, {
    allowInsecureConnection: true,
  });
  await visits.createTable();
  for (let row = 0; row < 3; row += 1) await visits.createEntity({ partitionKey: "42", rowKey: `${row}` });
  page = await browser.page();
});

after(async () => {
  await browser?.close();
  await server?.stop();
});

const go = async (path, wanted) => {
  // From an empty page: of the one before, something that is wanted here may still be shown.
  await page.goto("about:blank");
  await page.goto(`${server.url}/#/${path}`);
  await page.waitForSelector(wanted);
};
const text = (selector) => page.locator(selector).first().innerText();
const settled = (selector, pattern) =>
  page.waitForFunction(
    ([selector, source]) => new RegExp(source).test(document.querySelector(selector)?.innerText ?? ""),
    [selector, pattern.source],
  );
const noFaults = () => assert.deepEqual(page.faults, []);

test("the first page is there at once, without a question on loopback", async () => {
  await page.goto(server.url);
  await page.waitForSelector("canvas.strip");
  const painted = await page.evaluate(
    () => performance.getEntriesByName("first-contentful-paint")[0].startTime,
  );
  console.log(`first paint after ${Math.round(painted)} ms`);
  await settled("#live", /live/);
  noFaults();
});

test("a map shows where a key is and why", async () => {
  await go("maps/users", "canvas.strip");
  await page.fill("#key", "42");
  await page.keyboard.press("Enter");
  await page.waitForSelector("#found");
  const found = await text("#found");
  const { shard } = await server.ask("/v1/maps/users/locate?key=42");
  assert.match(found, new RegExp(`42 is on\\s*${shard}`));
  assert.match(found, /bucket 712 of 1,024/);
  await shot(page, "map-hash-strip");
  await page.click("#shape");
  assert.equal(await page.locator("canvas.ring").isVisible(), true);
  await shot(page, "map-hash-ring");
  await page.fill("#key", "no number");
  await page.keyboard.press("Enter");
  await settled(".notice.bad", /no number/);
  noFaults();
});

test("a map is zoomed by keys and by wheel down to single entries", async () => {
  await go("maps/tenants", "canvas.strip");
  await settled(".zoom", /entries 0 – 5 of 6/);
  await page.focus("canvas.strip");
  await page.keyboard.press("+");
  await settled(".zoom", /entries 1 – 4 of 6/);
  await page.keyboard.press("0");
  await settled(".zoom", /entries 0 – 5 of 6/);
  const box = await page.locator("canvas.strip").boundingBox();
  await page.mouse.move(box.x + 5, box.y + 20);
  assert.match(await text(".tip"), /acme → s1 \(online\)/);
  await page.mouse.click(box.x + 5, box.y + 20);
  assert.match(await text("#entry"), /acme/);
  await shot(page, "map-list");
  noFaults();
});

test("an entry is made read-only and brought back, and the request is shown before", async () => {
  await go("maps/tenants", "#move, canvas.strip");
  await page.getByRole("button", { name: "Open" }).nth(5).click();
  await page.getByRole("button", { name: "Make read-only" }).click();
  assert.match(await text("dialog pre"), /"state": "read_only"/);
  await shot(page, "map-confirm");
  await page.getByRole("button", { name: "Do it" }).click();
  await settled("#entry", /Done; the map is at version/);
  const state = async () => (await server.ask("/v1/maps/tenants/locate?key=flux")).state;
  assert.equal(await state(), "read_only");
  await settled("table tbody tr:last-child", /read-only/);
  await shot(page, "map-read-only");
  await page.getByRole("button", { name: "Open" }).nth(5).click();
  await page.getByRole("button", { name: "Bring online" }).click();
  await page.getByRole("button", { name: "Cancel" }).click();
  assert.equal(await state(), "read_only");
  await page.getByRole("button", { name: "Bring online" }).click();
  await page.getByRole("button", { name: "Do it" }).click();
  await settled("#entry", /Done; the map is at version/);
  assert.equal(await state(), "online");
  noFaults();
});

test("shards tell live how busy and quick they are", async () => {
  await go("shards", "#shards tbody tr");
  let asking = true;
  const traffic = (async () => {
    while (asking) await orders.getEntity("acme", "1");
  })();
  await page.waitForFunction(() => {
    const cell = document.querySelector('#shards tbody tr td[data-label="requests/s"]');
    return Number(cell.textContent.replace(",", "")) > 5;
  });
  await page.waitForFunction(() => /µs|ms/.test(document.querySelector('td[data-label="p99"]').textContent));
  await shot(page, "shards");
  assert.doesNotMatch(await text("main"), /\b1 connections/);
  await page.fill('input[type="search"]', "s3");
  assert.equal(await page.locator("#shards tbody tr").count(), 1);
  await page.fill('input[type="search"]', "");
  await page.getByRole("button", { name: "Requests/s" }).click();
  assert.match(await text("#shards tbody tr"), /s1/);
  asking = false;
  await traffic;
  noFaults();
});

test("the hottest shardlet is found, and its page lists what belongs to it in all stores", async () => {
  await go("shardlets", "#hot");
  await settled("#hot tbody tr", /acme/);
  await settled("#large tbody", /acme\s+tenants\s+s1\s+60\b/);
  assert.match(await text("#large tbody"), /\b42\s+users\s+s\d\s+3\b/);
  assert.match(await text("#large-said"), /^Counted \d+ s ago/);
  await shot(page, "shardlets");
  await page.locator("#hot").getByRole("link", { name: "acme" }).click();
  await page.waitForSelector("#datasets");
  assert.match(await text("#datasets"), /table:devstoreaccount1\/orders\s+60\s+of this key/);
  await shot(page, "shardlet");
  noFaults();
});

test("a shardlet is moved: the plan first, then live progress, and nothing is lost", async () => {
  await go("shardlets/tenants/acme", "#move");
  await page.click("#move");
  await page.selectOption("#target", "s3");
  await page.fill("#keep", "10");
  await page.getByRole("button", { name: "Show the plan" }).click();
  await page.waitForSelector("#plan");
  assert.match(await text("#plan tbody"), /acme\s+s1\s+s3\s+60/);
  await shot(page, "move-plan");
  await page.getByRole("button", { name: "Move it" }).click();
  await page.waitForSelector("#begun");
  await page.locator("#begun a").first().click();
  await page.waitForSelector("#operation");
  await settled("#operation", /keeping/);
  assert.match(await text("#operation"), /from\s+s1\s+to\s+s3/);
  await shot(page, "operation-move");
  assert.equal((await server.ask("/v1/maps/tenants/locate?key=acme")).shard, "s3");
  assert.equal((await orders.getEntity("acme", "59")).note.length, 100);
  noFaults();
});

test("a move is undone while the old rows are kept", async () => {
  await page.getByRole("button", { name: "Undo" }).click();
  await page.locator("dialog").getByRole("button", { name: "Undo" }).click();
  await settled(".notice", /asked for/);
  for (;;) {
    const { shard } = await server.ask("/v1/maps/tenants/locate?key=acme");
    if (shard === "s1") break;
    assert.equal(shard, "s3");
    await new Promise((done) => setTimeout(done, 100));
  }
  await go("operations", "#operations tbody tr");
  await shot(page, "operations");
  assert.equal((await orders.getEntity("acme", "59")).note.length, 100);
  noFaults();
});

// Asks until the answer is what is wanted.
const until = async (what, ask) => {
  for (let left = 600; left > 0; left -= 1) {
    if (await ask()) return;
    await new Promise((done) => setTimeout(done, 100));
  }
  assert.fail(`this did not come: ${what}`);
};
const shardOf = async (key) => (await server.ask(`/v1/maps/tenants/locate?key=${key}`)).shard;

test("a shard is emptied by a plan that is shown first, and the operation tells how far it is", async () => {
  await go("maps/tenants", "#rebalance");
  await page.click("#rebalance");
  await page.selectOption("#by", "rows");
  await page.selectOption("#drain", "s4");
  await shot(page, "rebalance");
  await page.getByRole("button", { name: "Show the plan" }).click();
  await page.waitForSelector("#plan");
  assert.match(await text("#plan tbody"), /dune\s+s4/);
  assert.match(await text("#after"), /s4\s+8 → 0/);
  await shot(page, "rebalance-plan");
  assert.equal(await shardOf("dune"), "s4", "nothing is done before it is confirmed");
  await page.getByRole("button", { name: "Begin 1 move" }).click();
  await page.locator("#begun a").click();
  await settled("#operation", /kind\s+drain/);
  await settled("#operation", /state\s+done/);
  await shot(page, "operation-drain");
  assert.notEqual(await shardOf("dune"), "s4");
  noFaults();
});

test("a shardlet gets a shard of its own: the steps first, then the operation", async () => {
  await go("shardlets/tenants/acme", "#isolate");
  await page.click("#isolate");
  await page.getByRole("button", { name: "Show the plan" }).click();
  await page.waitForSelector("#steps");
  // Every shard has something of the other map; an embedded one is only a file.
  assert.match(await text("#steps"), /add shard s5\s+move key "acme" from s1 to s5\s+record the rule/);
  await shot(page, "isolate-plan");
  await page.getByRole("button", { name: "Isolate it" }).click();
  await page.locator("#begun a").click();
  await settled("#operation", /kind\s+isolate/);
  await until("acme on the new shard", async () => (await shardOf("acme")) === "s5");
  await shot(page, "operation-isolate");
  assert.equal((await orders.getEntity("acme", "59")).note.length, 100);
  await go("operations", "#operations tbody tr");
  await settled("#operations", /isolate[\s\S]*drain/);
  await shot(page, "operations-procedures");
  noFaults();
});

// E1, B5: a move that goes slowly, because the server is busy and moves may take little of its time.
test("a move is paused, resumed and cancelled, and each is asked for first", async () => {
  const slow = await serve({ env: { POLYSHARD__MOVES__BUSY_SHARE_PERCENT: "1" } });
  const run = (sql) => slow.ask("/v1/query", { sql });
  const tab = await browser.page();
  let asking = true;
  let traffic;
  try {
    await slow.ask("/v1/maps", { name: "tenants", kind: "list", key: "text" });
    const entries = [{ range: { key: "acme" }, shard: "s1" }];
    await slow.ask("/v1/maps/tenants/changes", { add: { entries } });
    await run("CREATE TABLE notes (tenant text, id bigint, body text, PRIMARY KEY (tenant, id))");
    await run("SELECT polyshard.shard_table('notes', 'tenants', 'tenant')");
    const ROWS = 12_000;
    for (let first = 0; first < ROWS; first += 2_000) {
      const rows = Array.from({ length: 2_000 }, (_, at) => `('acme', ${first + at}, '${"x".repeat(100)}')`);
      await run(`INSERT INTO notes VALUES ${rows.join(", ")}`);
    }
    traffic = (async () => {
      while (asking) await run("SELECT id FROM notes WHERE tenant = 'acme' AND id < 5");
    })();
    const begun = await slow.ask("/v1/maps/tenants/moves", { range: { key: "acme" }, to: "s2" });
    await tab.goto(`${slow.url}/#/operations/${begun.parts[0].operation}`);
    const state = (pattern) =>
      tab.waitForFunction(
        (source) => new RegExp(source).test(document.querySelector("#operation")?.innerText ?? ""),
        pattern.source,
      );
    const wish = async (name) => {
      await tab.getByRole("button", { name, exact: true }).click();
      await tab.locator("dialog").getByRole("button", { name, exact: true }).click();
    };
    // Who does not confirm has not asked.
    await tab.getByRole("button", { name: "Pause", exact: true }).click();
    await tab.keyboard.press("Escape");
    const { progress } = await slow.ask(`/v1/operations/${begun.parts[0].operation}`);
    assert.equal(progress?.paused ?? false, false);
    await wish("Pause");
    await state(/state\s+paused/);
    await shot(tab, "operation-paused");
    await wish("Resume");
    await state(/state\s+running/);
    await wish("Pause");
    await state(/state\s+paused/);
    // Nobody else works from here on: what was copied is removed at once.
    asking = false;
    await traffic;
    await wish("Cancel");
    await state(/state\s+rolled back/);
    await shot(tab, "operation-cancelled");
    assert.equal((await slow.ask("/v1/maps/tenants/locate?key=acme")).shard, "s1");
    const left = await run("SELECT count(*) FROM notes WHERE tenant = 'acme'");
    assert.equal(left.results[0].rows[0][0], String(ROWS));
    assert.deepEqual(tab.faults, []);
  } finally {
    asking = false;
    await traffic;
    await tab.context().close();
    await slow.stop();
  }
});

test("SQL is run, and what is wrong with it is said", async () => {
  await go("query", "#sql");
  await page.fill("#sql", "SELECT 6 * 7 AS answer");
  await page.focus("#sql");
  await page.keyboard.press("Control+Enter");
  await page.waitForSelector("table.result");
  assert.match(await text("table.result"), /^answer\s+42$/);
  assert.match(await text("main"), /, 1 answer\b/);
  await shot(page, "query");
  await page.check("#timed");
  await page.getByRole("button", { name: "Run" }).click();
  await settled("#times", /s1\s+1\s+[\d.]+ (µs|ms)/);
  assert.match(await text("#route"), /any shard/);
  await page.fill("#sql", "SELEC");
  await page.getByRole("button", { name: "Run" }).click();
  await settled(".notice.bad", /SQLSTATE 42601/);
  noFaults();
});

test("pages are reached by keyboard, and the content first of all", async () => {
  await go("maps/users", "canvas.strip");
  await page.keyboard.press("Alt+2");
  await page.waitForSelector("#shards");
  await page.keyboard.press("Alt+4");
  await page.waitForSelector("#operations");
  assert.equal(await page.locator('nav a[aria-current="page"]').innerText(), "Operations");
  await page.reload();
  await page.waitForSelector("#operations");
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement.className), "skip");
  noFaults();
});

// Text that is too faint for its ground: less than 4.5 to 1 (WCAG 2.2, 1.4.3).
const FAINT = () => {
  const channel = (value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
  const parse = (colour) => colour.match(/[\d.]+/g).map(Number);
  const light = ([r, g, b]) =>
    0.2126 * channel(r / 255) + 0.7152 * channel(g / 255) + 0.0722 * channel(b / 255);
  const ground = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const colour = parse(getComputedStyle(one).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const faint = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || !element.checkVisibility() || element.disabled) continue;
    const [one, other] = [light(parse(getComputedStyle(element).color)), light(ground(element))];
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (ratio < 4.5)
      faint.push(`${element.tagName} ${element.textContent.trim().slice(0, 30)} ${ratio.toFixed(2)}`);
  }
  return faint;
};

test("on a phone and in the dark everything fits and can be read", async () => {
  for (const colorScheme of ["light", "dark"]) {
    const phone = await browser.page({ viewport: { width: 390, height: 844 }, colorScheme, hasTouch: true });
    for (const [name, path, wanted] of [
      ["maps", "maps/tenants", "#move, canvas.strip"],
      ["shards", "shards", "#shards tbody tr"],
      ["shardlet", "shardlets/tenants/acme", "#datasets"],
      ["operations", "operations", "#operations tbody tr"],
      ["query", "query", "#sql, #no-query"],
    ]) {
      await phone.goto(`${server.url}/#/${path}`);
      await phone.waitForSelector(wanted);
      const wide = await phone.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      assert.ok(wide <= 0, `${name} is ${wide} points wider than the screen`);
      assert.doesNotMatch(await phone.locator("main").innerText(), /null|undefined|NaN/, name);
      assert.deepEqual(await phone.evaluate(FAINT), [], `${name}, ${colorScheme}`);
      await shot(phone, `phone-${colorScheme}-${name}`);
    }
    assert.deepEqual(phone.faults, []);
    await phone.context().close();
  }
});

test("the theme can be chosen, and stays", async () => {
  await go("maps/users", "canvas.strip");
  const ground = () => page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
  const light = await ground();
  await page.click("#theme");
  await page.click("#theme");
  assert.match(await text("#theme"), /dark/);
  assert.notEqual(await ground(), light);
  await page.reload();
  await page.waitForSelector("canvas.strip");
  assert.notEqual(await ground(), light);
  await shot(page, "map-dark");
  await page.click("#theme");
  noFaults();
});

test("what is served may run nothing from elsewhere", async () => {
  const response = await fetch(server.url);
  const policy = response.headers.get("content-security-policy");
  assert.match(policy, /default-src 'none'; script-src 'self'/);
  assert.match(policy, /frame-ancestors 'none'/);
  assert.equal((await fetch(`${server.url}/v1/status`)).status, 401);
  assert.equal((await fetch(`${server.url}/metrics`)).status, 401);
});

test("a server with a token of its own asks for it, and only it opens", async () => {
  const own = await serve({ env: { POLYSHARD__ADMIN__TOKEN: "a-token-of-its-own" } });
  const tab = await browser.page();
  try {
    await tab.goto(own.url);
    await tab.waitForSelector("#token");
    await tab.fill("#token", "wrong");
    await tab.keyboard.press("Enter");
    await tab.waitForSelector(".notice.bad");
    await shot(tab, "login");
    await tab.fill("#token", "a-token-of-its-own");
    await tab.keyboard.press("Enter");
    await tab.waitForSelector("h1:has-text('Maps')");
    await tab.getByRole("button", { name: "Sign out" }).click();
    await tab.waitForSelector("#token");
    assert.deepEqual(tab.faults, []);
  } finally {
    await tab.context().close();
    await own.stop();
  }
});

test("while the server is away the page says so, and comes back by itself", async () => {
  const first = await serve();
  const tab = await browser.page();
  await tab.goto(first.url);
  await tab.waitForSelector("#live.on");
  await first.kill();
  await tab.waitForSelector("#away:visible");
  assert.match(await tab.locator("#away").innerText(), /The server is away/);
  assert.equal(await tab.locator("#page").isVisible(), false, "nothing is shown that may be untrue");
  await shot(tab, "away");
  const port = new URL(first.url).port;
  const second = await serve({ folder: first.data, port });
  try {
    await tab.waitForSelector("#page:visible h1");
    await tab.waitForSelector("#live.on");
  } finally {
    await tab.context().close();
    await second.stop();
  }
});
