// The console's page of archives: what is archived, what a rule would take, and the way back. D7, E1.

import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { browse, serve, shot } from "./program.mjs";

let browser;
let server;
let page;
let place;

// Hours that are not now: rules wait until somebody carries them out.
function otherHours() {
  const hour = new Date().getUTCHours();
  const at = (later) => `${String((hour + later) % 24).padStart(2, "0")}:00`;
  return `${at(12)}-${at(14)}`;
}

before(async () => {
  place = mkdtempSync(join(tmpdir(), "polyshard-archives-"));
  const env = { POLYSHARD__REBALANCE__HOURS: otherHours() };
  [server, browser] = await Promise.all([serve({ env }), browse()]);
  const run = (sql) => server.ask("/v1/query", { sql });
  await server.ask("/v1/maps", { name: "orders", kind: "range", key: "date" });
  const ranges = [
    { from: "2024-01-01", to: "2024-02-01" },
    { from: "2024-02-01", to: null },
  ];
  const entries = ranges.map((range) => ({ range, shard: "s1" }));
  await server.ask("/v1/maps/orders/changes", { add: { entries } });
  await run("CREATE TABLE orders (day date, id bigint, note text, PRIMARY KEY (day, id))");
  await run("SELECT polyshard.shard_table('orders', 'orders', 'day')");
  for (const month of ["01", "02"]) {
    for (let day = 1; day <= 9; day += 1) await run(`INSERT INTO orders VALUES ('2024-${month}-0${day}', ${day}, 'x')`);
  }
  await server.ask("/v1/maps/orders/archive-rules", {
    older_than: "2months",
    every: "day",
    then: { do: "archive", to: place },
  });
  page = await browser.page();
});

after(async () => {
  await browser?.close();
  await server?.stop();
  if (place) rmSync(place, { recursive: true, force: true });
});

const text = (selector) => page.locator(selector).first().innerText();
const settled = (selector, pattern) =>
  page.waitForFunction(
    ([selector, source]) => new RegExp(source).test(document.querySelector(selector)?.innerText ?? ""),
    [selector, pattern.source],
    { timeout: 60_000 },
  );

test("a rule says what it would take, is carried out, and an archive is restored", async () => {
  await page.goto(`${server.url}/#/archives`);
  await page.waitForSelector("#rules tbody tr");
  assert.match(await text("#rules tbody"), /by month, older than 2months/);
  assert.match(await text("#page"), /No archives/);
  await page.getByRole("button", { name: "What would it take?" }).click();
  await page.waitForSelector("dialog #plan");
  const plan = await text("dialog");
  assert.match(plan, /2024-01-01 up to 2024-02-01/);
  assert.match(plan, /older than 2months/);
  await shot(page, "archives-rule");
  await page.getByRole("button", { name: "Carry it out" }).click();
  await settled("#begun", /2 ranges of orders/);
  await settled("#archives tbody", /orders-2024-01[\s\S]*archived[\s\S]*orders-2024-02[\s\S]*archived/);
  await shot(page, "archives");
  assert.match(await text(".facts"), /18/);
  await page.getByRole("button", { name: "Restore" }).first().click();
  assert.match(await text("dialog"), /9 rows/);
  await page.selectOption("#target", "s2");
  await page.getByRole("button", { name: "Restore it" }).click();
  await settled("#archives tbody", /restored/);
  await shot(page, "archives-restored");
  assert.equal((await server.ask("/v1/maps/orders/locate?key=2024-01-05")).shard, "s2");
  assert.deepEqual(page.faults, []);
});

test("on a narrow screen the archives are cards", async () => {
  const narrow = await browser.page({ viewport: { width: 390, height: 844 } });
  await narrow.goto(`${server.url}/#/archives`);
  await narrow.waitForSelector("#archives tbody tr");
  const wide = await narrow.evaluate(() => document.documentElement.scrollWidth);
  assert.ok(wide <= 390, `${wide} points wide`);
  await shot(narrow, "archives-narrow");
  assert.deepEqual(narrow.faults, []);
});
