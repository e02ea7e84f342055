// Makes requests_javascript.json: requests as the Azure SDKs for JavaScript really send them, caught on the wire.
//
//     npm install @azure/data-tables @azure/storage-queue @azure/storage-blob
//     node javascript.mjs      (where these modules are found; it writes beside itself)

import net from "node:net";
import { writeFileSync } from "node:fs";
import * as tables from "@azure/data-tables";
import * as queues from "@azure/storage-queue";
import * as blobs from "@azure/storage-blob";

const ACCOUNT = "devstoreaccount1";
const KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
const EXPIRY = new Date("2099-01-01T00:00:00Z");
const METADATA = { ab: "1", a_b: "2", abc: "3", MixedCase: "4", a1: "5", _x: "6", A_: "7", ac: "8" };
const KEYS = ["plain", "o'b", "a b+c%20d", "ü€𝄞", "x=y&z", "a:b,c;d@e!f$g*h~i(j)"];

const vectors = [];
const caught = [];

// Answers every request with 404 and keeps its bytes.
const server = net.createServer((socket) => {
  let data = Buffer.alloc(0);
  socket.on("error", () => {});
  socket.on("data", (more) => {
    data = Buffer.concat([data, more]);
    const end = data.indexOf("\r\n\r\n");
    if (end < 0) return;
    const length = /\r\ncontent-length: (\d+)/i.exec(data.toString("latin1", 0, end + 2));
    if (data.length < end + 4 + Number(length?.[1] ?? 0)) return;
    caught.push(data.toString("latin1"));
    data = Buffer.alloc(0);
    socket.end("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
  });
});
await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
const url = `http://127.0.0.1:${server.address().port}/${ACCOUNT}`;

async function call(name, kind, identity, action) {
  const before = caught.length;
  try {
    const result = action();
    if (result[Symbol.asyncIterator]) for await (const _ of result);
    else await result;
  } catch (error) {
    if (caught.length === before) throw error;
  }
  if (caught.length !== before + 1) throw new Error(`${name}: ${caught.length - before} requests`);
  // The SDK tells about the machine there, and it is not signed.
  const request = caught.at(-1).replace(/User-Agent: [^\r]*\r\n/i, "");
  vectors.push({ name: `javascript ${name}`, kind, unix_s: Math.floor(Date.now() / 1000), identity, request });
}

const options = { allowInsecureConnection: true, retryOptions: { maxRetries: 0, maxTries: 1 } };
const named = new tables.AzureNamedKeyCredential(ACCOUNT, KEY);
const service = new tables.TableServiceClient(url, named, options);
const table = new tables.TableClient(url, "Orders", named, options);
const entity = { partitionKey: "p", rowKey: "o'b", n: 1.5 };
for (const [name, action] of [
  ["list tables", () => service.listTables()],
  ["create table", () => service.createTable("Orders")],
  ["delete table", () => service.deleteTable("Orders")],
  ["query", () => table.listEntities({ queryOptions: { filter: "PartitionKey eq 'a''b+c'", select: ["n"] } })],
  ["insert", () => table.createEntity(entity)],
  ["merge", () => table.updateEntity(entity, "Merge")],
  ["upsert", () => table.upsertEntity(entity, "Replace")],
  ["delete", () => table.deleteEntity("p", "o'b")],
  ["batch", () => table.submitTransaction([["create", entity], ["delete", { ...entity, rowKey: "s" }]])],
  ["get acl", () => table.getAccessPolicy()],
  ["properties", () => service.getProperties()],
  ...KEYS.map((key) => [`get ${key}`, () => table.getEntity(key, key)]),
]) {
  await call(`table ${name}`, "table", "SharedKey", action);
}

const shared = new queues.StorageSharedKeyCredential(ACCOUNT, KEY);
const queueService = new queues.QueueServiceClient(url, shared, options);
const jobs = queueService.getQueueClient("jobs");
for (const [name, action] of [
  ["create", () => jobs.create({ metadata: METADATA })],
  ["list", () => queueService.listQueues({ prefix: "a b+ü", includeMetadata: true })],
  ["put", () => jobs.sendMessage("hello <ü> & more", { messageTimeToLive: -1, visibilityTimeout: 5 })],
  ["get", () => jobs.receiveMessages({ numberOfMessages: 32, visibilityTimeout: 60 })],
  ["peek", () => jobs.peekMessages({ numberOfMessages: 5 })],
  ["update", () => jobs.updateMessage("id", "AgAAAA+/==", "x", 0)],
  ["delete", () => jobs.deleteMessage("id", "AgAAAA+/==")],
  ["clear", () => jobs.clearMessages()],
  ["get metadata", () => jobs.getProperties()],
  ["set metadata", () => jobs.setMetadata({ A: "b" })],
  ["set acl", () => jobs.setAccessPolicy([{ id: "id", accessPolicy: { permissions: "r" } }])],
]) {
  await call(`queue ${name}`, "queue", "SharedKey", action);
}

const blobShared = new blobs.StorageSharedKeyCredential(ACCOUNT, KEY);
const container = new blobs.ContainerClient(`${url}/pictures`, blobShared, options);
for (const name of ["plain", "dir//a b+c/", "ü%20'€'"]) {
  const blob = container.getBlockBlobClient(name);
  await call(`blob put ${name}`, "blob", "SharedKey", () => blob.upload("data", 4, { metadata: METADATA }));
  await call(`blob get ${name}`, "blob", "SharedKey", () => blob.download(5, 10));
}
await call("blob list", "blob", "SharedKey", () => container.listBlobsFlat({ prefix: "a/ü", includeMetadata: true }));

const tableSas = tables.generateTableSas("Orders", named, {
  permissions: { query: true, add: true },
  expiresOn: EXPIRY,
  startPartitionKey: "a",
  endPartitionKey: "b",
});
const tableAccount = tables.generateAccountSas(named, { permissions: { query: true }, expiresOn: EXPIRY });
for (const [name, token, identity] of [
  ["one table", tableSas, "service orders ar keys"],
  ["account", tableAccount, "account sco r"],
]) {
  const client = new tables.TableClient(url, "Orders", new tables.AzureSASCredential(token), options);
  await call(`sas table ${name}`, "table", identity, () => client.getEntity("a", "b"));
}
const queueSas = queues.generateQueueSASQueryParameters(
  {
    queueName: "jobs",
    permissions: queues.QueueSASPermissions.parse("rp"),
    expiresOn: EXPIRY,
    protocol: queues.SASProtocol.HttpsAndHttp,
  },
  shared,
);
const withSas = new queues.QueueClient(`${url}/jobs?${queueSas}`, undefined, options);
await call("sas queue one queue", "queue", "service jobs pr", () => withSas.peekMessages());

const lines = vectors.map((vector) => JSON.stringify(vector)).join(",\n");
writeFileSync(new URL("requests_javascript.json", import.meta.url), `[\n${lines}\n]\n`);
server.close();
