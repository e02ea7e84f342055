// SQL with the unmodified node-postgres: parameters, named statements, transactions, errors, a pool.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, before, test } from "node:test";
import pg from "pg";
import { door } from "./account.js";

const ssl = process.env.POLYSHARD_TLS === "on" ? { rejectUnauthorized: true } : false;
const options = { connectionString: door("sql"), ssl };
const table = "t" + randomUUID().replaceAll("-", "").slice(0, 12);
const pool = new pg.Pool({ ...options, max: 4 });

before(async () => {
  await pool.query(`CREATE TABLE ${table} (tenant bigint, id int, body text, PRIMARY KEY (tenant, id))`);
  // Another run may have made it.
  await pool.query("SELECT polyshard.create_map('tenants', 'hash', 'bigint')").catch(() => {});
  await pool.query("SELECT polyshard.shard_table($1, $2, $3)", [table, "tenants", "tenant"]);
});

after(async () => {
  await pool.query(`DROP TABLE ${table}`);
  await pool.end();
});

test("rows are written and read by many clients at once", async () => {
  const write = (tenant) => pool.query(`INSERT INTO ${table} VALUES ($1, 1, $2)`, [tenant, `of ${tenant}`]);
  await Promise.all(Array.from({ length: 20 }, (_, tenant) => write(tenant)));
  const read = { name: "read", text: `SELECT body FROM ${table} WHERE tenant = $1` };
  for (let tenant = 0; tenant < 20; tenant++) {
    const { rows } = await pool.query({ ...read, values: [tenant] });
    assert.deepEqual(rows, [{ body: `of ${tenant}` }]);
  }
  const { rows } = await pool.query(`SELECT count(*)::int AS n FROM ${table}`);
  assert.equal(rows[0].n, 20);
});

test("a failed transaction is rolled back, and says why", async () => {
  const client = new pg.Client(options);
  await client.connect();
  try {
    await client.query("BEGIN");
    await client.query(`INSERT INTO ${table} VALUES (100, 1, 'a')`);
    await assert.rejects(client.query(`INSERT INTO ${table} VALUES (100, 1, 'b')`), { code: "23505" });
    await assert.rejects(client.query("SELECT 1"), { code: "25P02" });
    await client.query("ROLLBACK");
    const { rowCount } = await client.query(`SELECT 1 FROM ${table} WHERE tenant = 100`);
    assert.equal(rowCount, 0);
  } finally {
    await client.end();
  }
});
