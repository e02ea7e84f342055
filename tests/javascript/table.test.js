// Tables with the unmodified JavaScript SDK: what it reads by pattern, and what differs from the other SDKs.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";
import {
  AzureNamedKeyCredential, AzureSASCredential, RestError, TableClient, TableServiceClient, TableTransaction, generateTableSas, odata,
} from "@azure/data-tables";
import { ACCOUNT, KEY, all, door } from "./account.js";

const url = door("table");
const credential = new AzureNamedKeyCredential(ACCOUNT, KEY);
const options = { allowInsecureConnection: true, retryOptions: { maxRetries: 0 } };

async function withTable(work) {
  const table = new TableClient(url, "T" + randomUUID().replaceAll("-", ""), credential, options);
  await table.createTable();
  try {
    await work(table);
  } finally {
    await table.deleteTable();
  }
}

function refusedWith(status, code) {
  return (error) => {
    assert.ok(error instanceof RestError, error);
    assert.equal(error.statusCode, status);
    assert.equal(error.details?.odataError?.code ?? error.code, code);
    return true;
  };
}

test("tables are made, listed and deleted", async () => {
  const service = new TableServiceClient(url, credential, options);
  const name = "Js" + randomUUID().replaceAll("-", "");
  await service.createTable(name);
  // Creating what is there is no error to this SDK.
  await service.createTable(name);
  const names = (await all(service.listTables())).map((table) => table.name);
  assert.ok(names.includes(name));
  const filter = odata`TableName eq ${name}`;
  assert.deepEqual((await all(service.listTables({ queryOptions: { filter } }))).map((table) => table.name), [name]);
  await service.deleteTable(name);
});

test("every type comes back as it was", () =>
  withTable(async (table) => {
    const sent = {
      partitionKey: "o'b ü",
      rowKey: "日本 %20",
      text: "a\u0000é😀",
      small: 5,
      one: { type: "Double", value: "1.0" },
      half: 0.5,
      large: 9007199254740993n,
      yes: true,
      when: new Date("2026-01-02T03:04:05.123Z"),
      guid: { type: "Guid", value: randomUUID() },
      raw: new Uint8Array([0, 1, 255]),
    };
    await table.createEntity(sent);
    const got = await table.getEntity(sent.partitionKey, sent.rowKey);
    for (const name of ["text", "small", "half", "large", "yes"]) assert.deepEqual(got[name], sent[name], name);
    assert.equal(got.one, 1);
    assert.equal(new Date(got.when).getTime(), sent.when.getTime());
    assert.deepEqual(got.guid, sent.guid);
    assert.deepEqual([...got.raw], [...sent.raw]);
    const typed = await table.getEntity(sent.partitionKey, sent.rowKey, { disableTypeConversion: true });
    assert.deepEqual(typed.large, { type: "Int64", value: "9007199254740993" });
    assert.ok(got.etag.startsWith("W/\"datetime'"));
  }));

test("numbers stay numbers, and what is selected and absent is null", () =>
  withTable(async (table) => {
    const now = Date.now();
    await table.createEntity({ partitionKey: "p", rowKey: "r", now, small: -5, huge: 2 ** 70, long: 5n });
    const got = await table.getEntity("p", "r");
    assert.deepEqual([got.now, got.small, got.huge, got.long], [now, -5, 2 ** 70, 5n]);
    const [found] = await all(table.listEntities({ queryOptions: { filter: odata`now eq ${now} and long eq 5` } }));
    assert.equal(found.now, now);
    const some = await table.getEntity("p", "r", { queryOptions: { select: ["small", "absent"] } });
    assert.deepEqual([some.small, some.absent, "long" in some], [-5, null, false]);
  }));

test("changes obey their conditions", () =>
  withTable(async (table) => {
    const entity = { partitionKey: "p", rowKey: "r", a: 1 };
    const { etag } = await table.createEntity(entity);
    await assert.rejects(table.createEntity(entity), refusedWith(409, "EntityAlreadyExists"));
    await table.updateEntity({ ...entity, a: 2, b: 3 }, "Merge", { etag });
    await assert.rejects(table.updateEntity(entity, "Replace", { etag }), refusedWith(412, "UpdateConditionNotSatisfied"));
    await table.upsertEntity({ partitionKey: "p", rowKey: "r", c: 4 }, "Replace");
    const got = await table.getEntity("p", "r");
    assert.equal(got.a, undefined);
    assert.equal(got.c, 4);
    await table.deleteEntity("p", "r");
    await assert.rejects(table.getEntity("p", "r"), refusedWith(404, "ResourceNotFound"));
  }));

test("queries go on page by page", () =>
  withTable(async (table) => {
    for (const partitionKey of ["a", "b"]) {
      const changes = [...Array(50).keys()].map((n) => ["create", { partitionKey, rowKey: String(n).padStart(3, "0"), n }]);
      await table.submitTransaction(changes);
    }
    assert.equal((await all(table.listEntities())).length, 100);
    const filter = odata`PartitionKey eq ${"b"} and n ge ${10} and n lt ${20}`;
    const found = await all(table.listEntities({ queryOptions: { filter, select: ["rowKey", "n"] } }));
    assert.deepEqual(found.map((entity) => entity.n), [10, 11, 12, 13, 14, 15, 16, 17, 18, 19]);
    const sizes = [];
    let token;
    do {
      const page = await table.listEntities().byPage({ maxPageSize: 30, continuationToken: token }).next();
      sizes.push(page.value.length);
      token = page.value.continuationToken;
    } while (token);
    assert.deepEqual(sizes, [30, 30, 30, 10]);
  }));

test("transactions are answered part by part, and name what failed", () =>
  withTable(async (table) => {
    const transaction = new TableTransaction();
    transaction.createEntity({ partitionKey: "p", rowKey: "1", a: 1 });
    transaction.upsertEntity({ partitionKey: "p", rowKey: "2 ü", a: 1 }, "Merge");
    transaction.upsertEntity({ partitionKey: "p", rowKey: "3", a: 1 }, "Replace");
    const answer = await table.submitTransaction(transaction.actions);
    assert.equal(answer.status, 202);
    assert.deepEqual(answer.subResponses.map((part) => part.status), [204, 204, 204]);
    assert.ok(answer.subResponses.every((part) => part.etag?.startsWith("W/\"datetime'")));
    assert.equal(answer.getResponseForEntity("1").status, 204);
    const failing = [
      ["delete", { partitionKey: "p", rowKey: "3" }],
      ["create", { partitionKey: "p", rowKey: "1" }],
    ];
    await assert.rejects(table.submitTransaction(failing), (error) => {
      assert.equal(error.statusCode, 409);
      assert.match(error.message, /already exists/);
      return true;
    });
    assert.equal((await all(table.listEntities())).length, 3);
  }));

test("access policies are kept", () =>
  withTable(async (table) => {
    const expiry = new Date("2030-01-02T03:04:05Z");
    await table.setAccessPolicy([{ id: "read", accessPolicy: { permission: "r", expiry } }]);
    const found = await table.getAccessPolicy();
    assert.equal(found[0].id, "read");
    assert.equal(found[0].accessPolicy.permission, "r");
  }));

test("signatures and policies allow what they say", () =>
  withTable(async (table) => {
    await table.createEntity({ partitionKey: "b", rowKey: "1", n: 1 });
    await table.createEntity({ partitionKey: "d", rowKey: "1", n: 1 });
    const expiresOn = new Date(Date.now() + 3600_000);
    const client = (values) => {
      const token = generateTableSas(table.tableName, credential, values);
      return new TableClient(url, table.tableName, new AzureSASCredential(token), options);
    };
    const reader = client({ permissions: { query: true }, expiresOn });
    assert.equal((await all(reader.listEntities())).length, 2);
    const added = { partitionKey: "b", rowKey: "2" };
    await assert.rejects(reader.createEntity(added), refusedWith(403, "AuthorizationPermissionMismatch"));
    const some = client({ permissions: { query: true, add: true }, expiresOn, startPartitionKey: "b", endPartitionKey: "c" });
    assert.deepEqual((await all(some.listEntities())).map((entity) => entity.partitionKey), ["b"]);
    await assert.rejects(some.getEntity("d", "1"), refusedWith(403, "AuthorizationFailure"));
    await some.createEntity(added);
    const expired = client({ permissions: { query: true }, startsOn: new Date(0), expiresOn: new Date(1000) });
    await assert.rejects(all(expired.listEntities()), refusedWith(403, "AuthenticationFailed"));
    await table.setAccessPolicy([{ id: "adders", accessPolicy: { permission: "a", expiry: expiresOn, start: new Date(0) } }]);
    const adder = client({ identifier: "adders" });
    await adder.createEntity({ partitionKey: "b", rowKey: "3" });
    await assert.rejects(adder.getEntity("b", "3"), refusedWith(403, "AuthorizationPermissionMismatch"));
    const stranger = new TableClient(url, table.tableName, new AzureNamedKeyCredential(ACCOUNT, "c2VjcmV0"), options);
    await assert.rejects(stranger.getEntity("b", "1"), refusedWith(403, "AuthenticationFailed"));
  }));
