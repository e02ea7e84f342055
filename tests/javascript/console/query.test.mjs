// The console's Query page on both engines: the route, and what each shard took. E1, C2.

import assert from "node:assert/strict";
import { writeFileSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { postgres } from "./postgres.mjs";
import { browse, serve, shot } from "./program.mjs";

let browser;
before(async () => {
  browser = await browse();
});
after(() => browser?.close());

const LONG = "a_table_with_a_name_that_is_as_long_as_names_may_be_in_postgres";

async function fill(server) {
  const run = (sql) => server.ask("/v1/query", { sql });
  await run("SELECT polyshard.create_map('tenants', 'hash', 'bigint')");
  for (const table of ["orders", LONG]) {
    await run(`CREATE TABLE ${table} (tenant bigint, id bigint, note text, PRIMARY KEY (tenant, id))`);
    await run(`SELECT polyshard.shard_table('${table}', 'tenants', 'tenant')`);
  }
  for (let tenant = 0; tenant < 50; tenant += 1) {
    const rows = [0, 50, 100, 150].map((at) => `(${tenant}, ${tenant + at}, 'order ${tenant + at}')`);
    await run(`INSERT INTO orders VALUES ${rows.join(", ")}`);
  }
}

async function look(server, engine, shards) {
  const page = await browser.page();
  const text = (selector) => page.locator(selector).first().innerText();
  const ask = async (sql) => {
    await page.fill("#sql", sql);
    await page.getByRole("button", { name: "Run" }).click();
    await page.waitForFunction(() => !document.querySelector("button.main").disabled);
  };
  // The cells of the table of times: name, rows, time.
  const times = () =>
    page
      .locator("#times tbody tr")
      .evaluateAll((rows) => rows.map((row) => [...row.cells].slice(0, 3).map((cell) => cell.innerText)));
  await page.goto(`${server.url}/#/query`);
  await page.waitForSelector("#sql");

  await ask("SELECT count(*) FROM orders");
  assert.match(await text("table.result"), /200/);
  assert.match(await text("#route"), new RegExp(`On each of ${shards.length} shards \\(${shards.join(", ")}\\)`));
  assert.equal(await page.locator("#times").count(), 0, "nothing is timed unless asked for");

  await page.check("#timed");
  await ask("SELECT tenant, note FROM orders ORDER BY id");
  const told = await times();
  assert.deepEqual(
    told.slice(0, shards.length).map(([name]) => name),
    shards,
  );
  for (const [name, , took] of told) assert.match(took, /^[\d.]+ (µs|ms|s)$/, name);
  const rows = told.slice(0, shards.length).map(([, rows]) => Number(rows));
  assert.equal(
    rows.reduce((sum, one) => sum + one, 0),
    200,
    JSON.stringify(told),
  );
  await shot(page, `query-${engine}`);

  const { shard } = await server.ask("/v1/maps/tenants/locate?key=7");
  await ask("SELECT note FROM orders WHERE tenant = 7");
  assert.deepEqual(
    (await times()).map(([name, rows]) => [name, rows]),
    [[shard, "4"]],
  );

  // What cannot be timed is run all the same, and once.
  await ask("INSERT INTO orders VALUES (7, 1000, 'once')");
  assert.equal(await page.locator("#times").count(), 0);
  await page.uncheck("#timed");
  await ask("SELECT note FROM orders WHERE tenant = 7 AND id = 1000");
  assert.match(await text("#route"), new RegExp(`shard ${shard}\\b`));
  assert.match(await text("table.result"), /once/);
  await ask("SELECT nothing FROM orders");
  assert.match(await text(".notice.bad"), /nothing/);
  await shot(page, `query-${engine}-wrong`);

  for (const colorScheme of ["light", "dark"]) {
    const phone = await browser.page({ viewport: { width: 390, height: 844 }, colorScheme, hasTouch: true });
    await phone.goto(`${server.url}/#/query`);
    await phone.fill("#sql", "SELECT tenant, id, note FROM orders ORDER BY id LIMIT 3");
    await phone.check("#timed");
    await phone.getByRole("button", { name: "Run" }).click();
    await phone.waitForSelector("#times");
    const wide = await phone.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    assert.ok(wide <= 0, `the page is ${wide} points wider than the screen`);
    await shot(phone, `phone-${colorScheme}-query-${engine}`);
    assert.deepEqual(phone.faults, []);
    await phone.context().close();
  }
  assert.deepEqual(page.faults, []);
  await page.context().close();
}

test("embedded shards and what each took", async () => {
  const server = await serve();
  try {
    await fill(server);
    await look(server, "embedded", ["s1", "s2", "s3", "s4"]);
  } finally {
    await server.stop();
  }
});

test("PostgreSQL shards and what each took", async () => {
  const shards = ["a", "b"];
  const database = await postgres(["catalog", ...shards]);
  const folder = mkdtempSync(join(tmpdir(), "polyshard-console-config-"));
  try {
    const file = join(folder, "polyshard.toml");
    const each = shards.map((id) => `[[shards]]\nid = "${id}"\nurl = "${database.url(id)}"\n`);
    writeFileSync(file, `[catalog]\nurl = "${database.url("catalog")}"\n${each.join("")}`);
    const server = await serve({ config: ["--config", file] });
    try {
      await fill(server);
      await look(server, "postgres", shards);
    } finally {
      await server.stop();
    }
  } finally {
    await database.stop();
    rmSync(folder, { recursive: true, force: true });
  }
});
