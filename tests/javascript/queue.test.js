// Queues with the unmodified JavaScript SDK: what it reads by pattern, and what differs from the other SDKs.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";
import {
  QueueClient,
  QueueSASPermissions,
  QueueServiceClient,
  RestError,
  StorageSharedKeyCredential,
  generateQueueSASQueryParameters,
} from "@azure/storage-queue";
import { ACCOUNT, KEY, all, door } from "./account.js";

const url = door("queue");
const credential = new StorageSharedKeyCredential(ACCOUNT, KEY);
const options = { retryOptions: { maxTries: 1 } };
const service = new QueueServiceClient(url, credential, options);

async function withQueue(work) {
  const queue = service.getQueueClient("q" + randomUUID());
  await queue.create();
  try {
    await work(queue);
  } finally {
    await queue.delete();
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

const texts = (answer) => answer.receivedMessageItems.map((message) => message.messageText);

test("queues are made, listed and deleted", async () => {
  const prefix = "js" + randomUUID().slice(0, 8);
  const names = ["a", "b", "c"].map((letter) => `${prefix}-${letter}`);
  for (const name of names) await service.createQueue(name, { metadata: { owner: name, MixedCase: "kept" } });
  const listed = await all(service.listQueues({ prefix, includeMetadata: true }));
  assert.deepEqual(listed.map((queue) => queue.name), names);
  assert.equal(listed[1].metadata.owner, names[1]);
  const pages = [];
  for await (const page of service.listQueues({ prefix }).byPage({ maxPageSize: 2 })) {
    pages.push(page.queueItems.map((queue) => queue.name));
  }
  assert.deepEqual(pages, [names.slice(0, 2), names.slice(2)]);
  const again = await service.getQueueClient(names[0]).createIfNotExists();
  assert.equal(again.succeeded, false);
  for (const name of names) await service.deleteQueue(name);
  assert.equal((await service.getQueueClient(names[0]).deleteIfExists()).succeeded, false);
  assert.equal(await service.getQueueClient(names[0]).exists(), false);
});

test("messages are put, got, updated and deleted", () =>
  withQueue(async (queue) => {
    const sent = await queue.sendMessage("<a> & ü 😀", { messageTimeToLive: -1 });
    assert.equal(sent.expiresOn.getUTCFullYear(), 9999);
    assert.equal((await queue.peekMessages()).peekedMessageItems[0].messageText, "<a> & ü 😀");
    const [got] = (await queue.receiveMessages({ visibilityTimeout: 600 })).receivedMessageItems;
    assert.equal(got.messageId, sent.messageId);
    assert.equal(got.dequeueCount, 1);
    assert.deepEqual(texts(await queue.receiveMessages()), []);
    await assert.rejects(queue.deleteMessage(got.messageId, sent.popReceipt), refusedWith(400, "PopReceiptMismatch"));
    const updated = await queue.updateMessage(got.messageId, got.popReceipt, "new", 0);
    const [again] = (await queue.receiveMessages()).receivedMessageItems;
    assert.equal(again.messageText, "new");
    assert.equal(again.dequeueCount, 2);
    await assert.rejects(queue.deleteMessage(got.messageId, updated.popReceipt), refusedWith(400, "PopReceiptMismatch"));
    await queue.deleteMessage(again.messageId, again.popReceipt);
    await assert.rejects(queue.deleteMessage(again.messageId, again.popReceipt), refusedWith(404, "MessageNotFound"));
  }));

test("messages come in order, up to 32 at a time, and are counted and cleared", () =>
  withQueue(async (queue) => {
    const sent = [...Array(40).keys()].map((n) => `m${n}`);
    for (const text of sent) await queue.sendMessage(text);
    assert.equal((await queue.getProperties()).approximateMessagesCount, 40);
    assert.deepEqual(texts(await queue.receiveMessages({ numberOfMessages: 32 })), sent.slice(0, 32));
    await assert.rejects(queue.receiveMessages({ numberOfMessages: 33 }), refusedWith(400, "OutOfRangeQueryParameterValue"));
    await queue.clearMessages();
    assert.equal((await queue.getProperties()).approximateMessagesCount, 0);
    await assert.rejects(queue.sendMessage("x".repeat(65537)), refusedWith(413, "RequestBodyTooLarge"));
  }));

test("metadata is kept; names are in lower case to this SDK", () =>
  withQueue(async (queue) => {
    await queue.setMetadata({ One: "1", two_: "b c" });
    const { metadata } = await queue.getProperties();
    assert.deepEqual(metadata, { one: "1", two_: "b c" });
  }));

test("signatures and policies allow what they say", () =>
  withQueue(async (queue) => {
    const expiresOn = new Date(Date.now() + 3600_000);
    const client = (values) => {
      const token = generateQueueSASQueryParameters({ queueName: queue.name, ...values }, credential);
      return new QueueClient(`${queue.url}?${token}`, undefined, options);
    };
    const adder = client({ permissions: QueueSASPermissions.parse("a"), expiresOn });
    await adder.sendMessage("by signature");
    await assert.rejects(adder.receiveMessages(), refusedWith(403, "AuthorizationPermissionMismatch"));
    await queue.setAccessPolicy([{ id: "readers", accessPolicy: { permissions: "r", expiresOn, startsOn: new Date(0) } }]);
    const { signedIdentifiers } = await queue.getAccessPolicy();
    assert.equal(signedIdentifiers[0].accessPolicy.permissions, "r");
    const reader = client({ identifier: "readers" });
    assert.equal((await reader.peekMessages()).peekedMessageItems.length, 1);
    const wrong = new StorageSharedKeyCredential(ACCOUNT, "c2VjcmV0");
    const stranger = new QueueClient(queue.url, wrong, options);
    await assert.rejects(stranger.peekMessages(), refusedWith(403, "AuthenticationFailed"));
  }));

test("service properties are kept", async () => {
  const metrics = { version: "1.0", enabled: true, includeAPIs: true, retentionPolicy: { enabled: true, days: 3 } };
  const cors = [
    { allowedOrigins: "https://a.example", allowedMethods: "GET", allowedHeaders: "", exposedHeaders: "", maxAgeInSeconds: 9 },
  ];
  await service.setProperties({ hourMetrics: metrics, cors });
  const found = await service.getProperties();
  assert.equal(found.hourMetrics.retentionPolicy.days, 3);
  assert.equal(found.cors[0].maxAgeInSeconds, 9);
});
