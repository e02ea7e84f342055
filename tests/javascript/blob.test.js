// Blobs with the unmodified JavaScript SDK: the main flows, and what it reads by pattern.

import assert from "node:assert/strict";
import { createHash, randomBytes, randomUUID } from "node:crypto";
import { Readable } from "node:stream";
import { test } from "node:test";
import {
  BlobClient,
  BlobSASPermissions,
  BlobServiceClient,
  ContainerClient,
  ContainerSASPermissions,
  RestError,
  StorageSharedKeyCredential,
  generateBlobSASQueryParameters,
} from "@azure/storage-blob";
import { ACCOUNT, KEY, all, door } from "./account.js";

const url = door("blob");
const credential = new StorageSharedKeyCredential(ACCOUNT, KEY);
const options = { retryOptions: { maxTries: 1 } };
const service = new BlobServiceClient(url, credential, options);
const soon = () => new Date(Date.now() + 3600_000);

async function withContainer(work) {
  const container = service.getContainerClient("c" + randomUUID());
  await container.create();
  try {
    await work(container);
  } finally {
    await container.delete();
  }
}

function refusedWith(status, code) {
  return (error) => {
    assert.ok(error instanceof RestError, error);
    assert.equal(error.statusCode, status);
    assert.equal(error.code ?? error.details?.errorCode, code);
    return true;
  };
}

async function read(blob, offset, count) {
  const answer = await blob.download(offset, count);
  const parts = [];
  for await (const part of answer.readableStreamBody) parts.push(part);
  return Buffer.concat(parts);
}

const names = (blobs) => blobs.map((blob) => blob.name);

test("containers are made, listed and deleted", async () => {
  const prefix = "js" + randomUUID().slice(0, 8);
  const made = ["a", "b", "c"].map((letter) => `${prefix}-${letter}`);
  for (const name of made) await service.createContainer(name, { metadata: { owner: name } });
  const listed = await all(service.listContainers({ prefix, includeMetadata: true }));
  assert.deepEqual(names(listed), made);
  assert.equal(listed[1].metadata.owner, made[1]);
  const pages = [];
  for await (const page of service.listContainers({ prefix }).byPage({ maxPageSize: 2 })) {
    pages.push(names(page.containerItems));
  }
  assert.deepEqual(pages, [made.slice(0, 2), made.slice(2)]);
  const first = service.getContainerClient(made[0]);
  assert.equal((await first.createIfNotExists()).succeeded, false);
  for (const name of made) await service.deleteContainer(name);
  assert.equal((await first.deleteIfExists()).succeeded, false);
  assert.equal(await first.exists(), false);
});

test("blobs are put, got, changed and deleted", () =>
  withContainer(async (container) => {
    const blob = container.getBlockBlobClient("a folder/ü & é's.txt");
    const content = "some text, ü";
    const blobHTTPHeaders = { blobContentType: "text/plain", blobCacheControl: "no-cache" };
    const tags = { project: "one" };
    await blob.upload(content, Buffer.byteLength(content), { blobHTTPHeaders, metadata: { mixed: "a b" }, tags });
    assert.equal((await blob.downloadToBuffer()).toString(), content);
    assert.equal((await read(blob, 5, 4)).toString(), "text");
    const found = await blob.getProperties();
    assert.equal(found.contentType, "text/plain");
    assert.equal(found.contentLength, Buffer.byteLength(content));
    assert.deepEqual(found.metadata, { mixed: "a b" });
    assert.deepEqual(Buffer.from(found.contentMD5), createHash("md5").update(content).digest());
    assert.deepEqual((await blob.getTags()).tags, { project: "one" });
    await blob.setMetadata({ other: "1" });
    await blob.setHTTPHeaders({ blobContentType: "text/html" });
    await blob.setAccessTier("Cool");
    const changed = await blob.getProperties();
    assert.deepEqual([changed.metadata, changed.contentType, changed.accessTier], [{ other: "1" }, "text/html", "Cool"]);
    assert.notEqual(changed.etag, found.etag);
    const found2 = await all(service.findBlobsByTags(`@container='${container.containerName}' AND "project"='one'`));
    assert.deepEqual(names(found2), [blob.name]);
    await blob.delete();
    assert.equal(await blob.exists(), false);
    assert.equal((await blob.deleteIfExists()).succeeded, false);
    await assert.rejects(blob.download(), refusedWith(404, "BlobNotFound"));
  }));

test("large blobs go in blocks and come in parts", () =>
  withContainer(async (container) => {
    const content = randomBytes(20 * 1024 * 1024 + 17);
    const blob = container.getBlockBlobClient("large");
    await blob.uploadData(content, { blockSize: 1024 * 1024, maxSingleShotSize: 1024 * 1024, concurrency: 4 });
    const { committedBlocks } = await blob.getBlockList("all");
    assert.equal(committedBlocks.length, 21);
    assert.ok((await blob.downloadToBuffer(0, undefined, { blockSize: 3_000_000, concurrency: 4 })).equals(content));
    await blob.uploadStream(Readable.from([content.subarray(0, 100), content.subarray(100, 5_000_000)]), 1024 * 1024, 3);
    assert.ok((await read(blob)).equals(content.subarray(0, 5_000_000)));
  }));

test("listings have pages, levels and names as they are", () =>
  withContainer(async (container) => {
    const made = ["a", "a//b", "a/b", "a/c/d", "a b", "a%2Fb", "ü/é", "<&>", "x\u0001y", "z/"];
    for (const name of made) await container.getBlockBlobClient(name).upload("x", 1);
    const sorted = [...made].sort((one, other) => Buffer.compare(Buffer.from(one), Buffer.from(other)));
    assert.deepEqual(names(await all(container.listBlobsFlat())), sorted);
    const pages = [];
    for await (const page of container.listBlobsFlat().byPage({ maxPageSize: 3 })) pages.push(names(page.segment.blobItems));
    assert.deepEqual(pages.flat(), sorted);
    assert.ok(pages.every((page) => page.length <= 3));
    const level = await all(container.listBlobsByHierarchy("/", { prefix: "a/" }));
    assert.deepEqual(level.map((each) => `${each.kind} ${each.name}`).sort(), ["blob a/b", "prefix a//", "prefix a/c/"]);
  }));

test("append and page blobs", () =>
  withContainer(async (container) => {
    const log = container.getAppendBlobClient("log");
    await log.create();
    await log.appendBlock("one", 3);
    const second = await log.appendBlock("two", 3, { conditions: { appendPosition: 3 } });
    assert.equal(second.blobAppendOffset, "3");
    await assert.rejects(
      log.appendBlock("x", 1, { conditions: { appendPosition: 3 } }),
      refusedWith(412, "AppendPositionConditionNotMet"),
    );
    assert.equal((await log.downloadToBuffer()).toString(), "onetwo");
    const pages = container.getPageBlobClient("pages");
    await pages.create(10 * 512);
    const data = randomBytes(1024);
    await pages.uploadPages(data, 512, 1024);
    const { snapshot } = await pages.createSnapshot();
    await pages.clearPages(512, 512);
    const ranges = await pages.getPageRanges();
    // The SDK counts one less than there are.
    assert.deepEqual(ranges.pageRange, [{ offset: 1024, count: 511 }]);
    const diff = await pages.getPageRangesDiff(0, undefined, snapshot);
    assert.deepEqual([diff.pageRange ?? [], diff.clearRange], [[], [{ offset: 512, count: 511 }]]);
    assert.ok((await pages.withSnapshot(snapshot).downloadToBuffer(512, 1024)).equals(data));
    await pages.resize(512);
    await pages.updateSequenceNumber("increment");
    const found = await pages.getProperties();
    assert.deepEqual([found.contentLength, found.blobSequenceNumber], [512, 1]);
    await pages.delete({ deleteSnapshots: "include" });
  }));

test("conditions and leases", () =>
  withContainer(async (container) => {
    const blob = container.getBlockBlobClient("guarded");
    const { etag } = await blob.upload("1", 1, { conditions: { ifNoneMatch: "*" } });
    await assert.rejects(blob.upload("2", 1, { conditions: { ifNoneMatch: "*" } }), refusedWith(409, "BlobAlreadyExists"));
    await blob.upload("2", 1, { conditions: { ifMatch: etag } });
    await assert.rejects(blob.upload("3", 1, { conditions: { ifMatch: etag } }), refusedWith(412, "ConditionNotMet"));
    await assert.rejects(
      blob.getProperties({ conditions: { ifMatch: etag } }),
      (error) => error.statusCode === 412 && error.response.headers.get("x-ms-error-code") === "ConditionNotMet",
    );
    const lease = blob.getBlobLeaseClient();
    const { leaseId } = await lease.acquireLease(30);
    await assert.rejects(blob.upload("4", 1), refusedWith(412, "LeaseIdMissing"));
    await blob.upload("5", 1, { conditions: { leaseId } });
    await lease.renewLease();
    await lease.changeLease(randomUUID());
    assert.equal((await lease.breakLease(0)).leaseTime, 0);
    await blob.upload("6", 1);
    await assert.rejects(lease.renewLease(), (error) => error.statusCode === 409);
  }));

test("copies and snapshots", () =>
  withContainer(async (container) => {
    const blob = container.getBlockBlobClient("original");
    await blob.upload("first", 5, { metadata: { kept: "yes" } });
    const { snapshot } = await blob.createSnapshot();
    await blob.upload("second", 6);
    const copy = container.getBlockBlobClient("copy");
    const done = await (await copy.beginCopyFromURL(blob.withSnapshot(snapshot).url)).pollUntilDone();
    assert.equal(done.copyStatus, "success");
    assert.equal((await copy.downloadToBuffer()).toString(), "first");
    assert.deepEqual((await copy.getProperties()).metadata, { kept: "yes" });
    const source = await blob.generateSasUrl({ permissions: BlobSASPermissions.parse("r"), expiresOn: soon() });
    assert.equal((await copy.syncCopyFromURL(source)).copyStatus, "success");
    await container.getBlockBlobClient("from").syncUploadFromURL(source);
    assert.equal((await container.getBlockBlobClient("from").downloadToBuffer()).toString(), "second");
    const listed = await all(container.listBlobsFlat({ includeSnapshots: true, prefix: "original" }));
    assert.deepEqual(listed.map((each) => each.snapshot ?? "").sort(), ["", snapshot]);
    await assert.rejects(blob.delete(), refusedWith(409, "SnapshotsPresent"));
    await blob.delete({ deleteSnapshots: "include" });
  }));

test("batches stand each for itself", () =>
  withContainer(async (container) => {
    const blobs = ["a", "b c", "ü"].map((name) => container.getBlockBlobClient(name));
    for (const blob of blobs) await blob.upload("x", 1);
    const batch = service.getBlobBatchClient();
    const tiers = await batch.setBlobsAccessTier(blobs, "Cool");
    assert.equal(tiers.subResponsesSucceededCount, 3);
    const missing = container.getBlockBlobClient("missing");
    const answer = await batch.deleteBlobs([blobs[0], missing, blobs[1]]);
    assert.deepEqual([answer.subResponsesSucceededCount, answer.subResponsesFailedCount], [2, 1]);
    assert.deepEqual(answer.subResponses.map((each) => each.status), [202, 404, 202]);
    assert.equal(answer.subResponses[1].errorCode, "BlobNotFound");
    assert.deepEqual(names(await all(container.listBlobsFlat())), ["ü"]);
  }));

test("signatures and policies allow what they say", () =>
  withContainer(async (container) => {
    await container.getBlockBlobClient("x/y").upload("content", 7);
    const values = { containerName: container.containerName };
    const token = (more) => generateBlobSASQueryParameters({ ...values, ...more }, credential).toString();
    const permissions = BlobSASPermissions.parse("r");
    const signed = token({ blobName: "x/y", permissions, expiresOn: soon() });
    const blob = new BlobClient(`${container.getBlobClient("x/y").url}?${signed}`, undefined, options);
    assert.equal((await blob.downloadToBuffer()).toString(), "content");
    await assert.rejects(blob.delete(), refusedWith(403, "AuthorizationPermissionMismatch"));
    const lister = token({ permissions: ContainerSASPermissions.parse("l"), expiresOn: soon() });
    const here = new ContainerClient(`${container.url}?${lister}`, undefined, options);
    assert.deepEqual(names(await all(here.listBlobsFlat())), ["x/y"]);
    const accessPolicy = { permissions: "r", expiresOn: soon(), startsOn: new Date(0) };
    await container.setAccessPolicy(undefined, [{ id: "readers", accessPolicy }]);
    assert.equal((await container.getAccessPolicy()).signedIdentifiers[0].accessPolicy.permissions, "r");
    const stored = new ContainerClient(`${container.url}?${token({ identifier: "readers" })}`, undefined, options);
    assert.equal((await stored.getBlobClient("x/y").downloadToBuffer()).toString(), "content");
    const wrong = new StorageSharedKeyCredential(ACCOUNT, "c2VjcmV0");
    const stranger = new BlobClient(container.getBlobClient("x/y").url, wrong, options);
    await assert.rejects(stranger.download(), refusedWith(403, "AuthenticationFailed"));
  }));

test("service properties are kept", async () => {
  const metrics = { version: "1.0", enabled: true, includeAPIs: true, retentionPolicy: { enabled: true, days: 3 } };
  const cors = [
    { allowedOrigins: "https://a.example", allowedMethods: "GET", allowedHeaders: "", exposedHeaders: "", maxAgeInSeconds: 9 },
  ];
  await service.setProperties({ hourMetrics: metrics, cors, deleteRetentionPolicy: { enabled: true, days: 4 } });
  const found = await service.getProperties();
  assert.equal(found.hourMetrics.retentionPolicy.days, 3);
  assert.equal(found.cors[0].maxAgeInSeconds, 9);
  assert.equal(found.deleteRetentionPolicy.days, 4);
  await service.setProperties({ deleteRetentionPolicy: { enabled: false }, cors: [] });
  assert.ok((await service.getAccountInfo()).accountKind);
});

test("with retention a deleted blob comes back", async () => {
  await service.setProperties({ deleteRetentionPolicy: { enabled: true, days: 1 } });
  try {
    await withContainer(async (container) => {
      const blob = container.getBlockBlobClient("deleted");
      await blob.upload("kept", 4);
      await blob.delete();
      const [listed] = await all(container.listBlobsFlat({ includeDeleted: true }));
      assert.deepEqual([listed.name, listed.deleted], ["deleted", true]);
      await blob.undelete();
      assert.equal((await blob.downloadToBuffer()).toString(), "kept");
    });
  } finally {
    await service.setProperties({ deleteRetentionPolicy: { enabled: false } });
  }
});
