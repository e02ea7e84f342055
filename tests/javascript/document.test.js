// Documents with the unmodified JavaScript SDK of Cosmos DB: what it sends otherwise than the one for Python.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";
import { BulkOperationType, CosmosClient, PatchOperationType } from "@azure/cosmos";
import { door } from "./account.js";

// The key of the emulator, which Microsoft publishes.
const KEY = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqsAJ5oeP4K1r0Mn9wA==";

async function withContainer(work, definition = { partitionKey: { paths: ["/pk"] } }) {
  const client = new CosmosClient({ endpoint: door("document"), key: KEY, connectionPolicy: { retryOptions: { maxRetryAttemptCount: 0 } } });
  const { database } = await client.databases.create({ id: `js + é%41&=${randomUUID()}` });
  try {
    const { container } = await database.containers.create({ id: "c", ...definition });
    await work(container, database);
  } finally {
    await database.delete();
    client.dispose();
  }
}

const ids = (items) => items.map((item) => item.id).sort();

test("an item is created, read, replaced, upserted and deleted", () =>
  withContainer(async (container) => {
    const sent = { id: "1", pk: "日本", n: 1, in: { b: 1, a: [null, 2.5] } };
    const { resource: created, statusCode } = await container.items.create(sent);
    assert.equal(statusCode, 201);
    await assert.rejects(container.items.create(sent), (error) => error.code === 409);
    const item = container.item("1", "日本");
    const { resource: read } = await item.read();
    assert.deepEqual(read, created);
    const accessCondition = { type: "IfMatch", condition: created._etag };
    const { resource: replaced } = await item.replace({ ...sent, n: 2 }, { accessCondition });
    assert.equal(replaced.n, 2);
    await assert.rejects(item.replace({ ...sent, n: 3 }, { accessCondition }), (error) => error.code === 412);
    assert.equal((await container.items.upsert({ ...sent, n: 4 })).statusCode, 200);
    const { resource: patched } = await item.patch([{ op: PatchOperationType.incr, path: "/n", value: 2 }]);
    assert.equal(patched.n, 6);
    const condition = "from c where c.n > 100";
    const operations = [{ op: PatchOperationType.set, path: "/n", value: 0 }];
    await assert.rejects(item.patch({ condition, operations }), (error) => error.code === 412);
    await item.delete();
    assert.equal((await item.read()).statusCode, 404);
  }));

test("documents without the key, and hierarchical keys", async () => {
  await withContainer(async (container) => {
    await container.items.create({ id: "1" });
    await container.items.create({ id: "1", pk: null });
    assert.equal((await container.items.readAll().fetchAll()).resources.length, 2);
    assert.equal((await container.item("1", undefined).read()).resource.id, "1");
  });
  const partitionKey = { paths: ["/a", "/b"], kind: "MultiHash", version: 2 };
  await withContainer(async (container) => {
    for (const a of ["x", "y"]) for (const b of [1, 2]) await container.items.create({ id: "1", a, b });
    assert.equal((await container.item("1", ["x", 2]).read()).resource.b, 2);
    const query = (key) => container.items.query("SELECT * FROM c", { partitionKey: key }).fetchAll();
    assert.equal((await query(["x"])).resources.length, 2);
    assert.equal((await query(["x", 1])).resources.length, 1);
  }, { partitionKey });
});

test("queries over all partitions, page by page", () =>
  withContainer(async (container) => {
    for (let n = 0; n < 25; n += 1) await container.items.create({ id: String(n), pk: `p${n % 4}`, n, team: n % 2 ? "odd" : "even" });
    const ask = async (query, options) => (await container.items.query(query, options).fetchAll()).resources;
    assert.deepEqual(await ask("SELECT VALUE c.n FROM c ORDER BY c.n DESC OFFSET 2 LIMIT 3"), [22, 21, 20]);
    assert.deepEqual(await ask("SELECT VALUE COUNT(1) FROM c"), [25]);
    const groups = await ask("SELECT c.team, SUM(c.n) AS n FROM c GROUP BY c.team");
    assert.deepEqual(new Map(groups.map(({ team, n }) => [team, n])), new Map([["even", 156], ["odd", 144]]));
    const parameters = [{ name: "@n", value: 20 }];
    assert.deepEqual(ids(await ask({ query: "SELECT * FROM c WHERE c.n >= @n", parameters })), ["20", "21", "22", "23", "24"]);
    const found = [];
    let continuationToken;
    do {
      const page = await container.items.query("SELECT * FROM c ORDER BY c.n", { maxItemCount: 7, continuationToken }).fetchNext();
      found.push(...page.resources.map((item) => item.n));
      continuationToken = page.continuationToken;
    } while (continuationToken);
    assert.deepEqual(found, [...Array(25).keys()]);
    assert.equal((await container.items.readAll({ maxItemCount: 10 }).fetchAll()).resources.length, 25);
    await assert.rejects(ask("SELECT nonsense("), (error) => error.code === 400);
  }));

test("a batch is all or nothing, and bulk operations are each by themselves", () =>
  withContainer(async (container) => {
    const create = (id, pk = "a") => ({ operationType: BulkOperationType.Create, resourceBody: { id, pk } });
    const done = await container.items.batch([create("1"), create("2")], "a");
    assert.deepEqual(done.result.map((one) => one.statusCode), [201, 201]);
    const failed = await container.items.batch([create("3"), create("1"), create("4")], "a");
    assert.deepEqual(failed.result.map((one) => one.statusCode), [424, 409, 424]);
    assert.equal((await container.item("3", "a").read()).statusCode, 404);
    const bulk = await container.items.executeBulkOperations([
      { operationType: BulkOperationType.Create, partitionKey: "b", resourceBody: { id: "5", pk: "b" } },
      { operationType: BulkOperationType.Read, partitionKey: "a", id: "1" },
      { operationType: BulkOperationType.Delete, partitionKey: "a", id: "none" },
    ]);
    assert.deepEqual(bulk.map((one) => one.response?.statusCode ?? one.error?.code), [201, 200, 404]);
    assert.deepEqual(ids((await container.items.readAll().fetchAll()).resources), ["1", "2", "5"]);
  }));

test("containers are listed, changed and have throughput", () =>
  withContainer(async (container, database) => {
    assert.deepEqual(ids((await database.containers.readAll().fetchAll()).resources), ["c"]);
    const { resource } = await container.read();
    assert.deepEqual(resource.partitionKey.paths, ["/pk"]);
    await container.replace({ ...resource, defaultTtl: 60 });
    assert.equal((await container.read()).resource.defaultTtl, 60);
    const { resource: offer } = await container.readOffer();
    assert.equal(offer.content.offerThroughput, 400);
  }));
