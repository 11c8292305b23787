"use strict";
const assert = require("node:assert/strict");
const { after, before, test } = require("node:test");
const { Kafka, logLevel } = require("kafkajs");
const { startBroker } = require("..");

let broker;
before(async () => {
  broker = await startBroker({ topics: ["orders:2"] });
});
after(() => broker.stop());

test("a consumer reads what is there, and the broker sees it catch up", async () => {
  await broker.append("orders", ["a", ["k", "b"]]);
  assert.equal(await broker.lag("billing", "orders"), 2);
  const kafka = new Kafka({ clientId: "test", brokers: broker.brokers, logLevel: logLevel.NOTHING });
  const consumer = kafka.consumer({ groupId: "billing" });
  await consumer.connect();
  await consumer.subscribe({ topics: ["orders"], fromBeginning: true });
  const seen = [];
  await consumer.run({ autoCommitThreshold: 1, eachMessage: async ({ message }) => seen.push(message.value.toString()) });
  await broker.waitUntilStable("billing", 1, { timeoutMs: 15000 });
  await broker.waitUntilCaughtUp("billing", "orders", { timeoutMs: 15000 });
  await broker.waitForRequest("OffsetCommit");
  await consumer.disconnect();
  assert.deepEqual(seen.sort(), ["a", "b"]);
});

test("faults, time and snapshots", async () => {
  await broker.createTopic("t", { config: { "retention.ms": 1000 } });
  const fault = await broker.addFault("delay", { api: "Produce", ms: 1 });
  assert.equal(await fault.fired(), 0);
  await fault.remove();
  const state = await broker.snapshot();
  await broker.append("t", ["x"]);
  const [record] = await broker.waitForRecords("t");
  assert.equal(record.value.toString(), "x");
  assert.equal(record.key, null);
  await broker.restore(state);
  assert.deepEqual(await broker.records("t"), []);
  await broker.advance({ days: 1 });
  await assert.rejects(broker.records("nope"), /there is no topic 'nope'/);
});

test("mistakes are explained", async () => {
  await assert.rejects(startBroker({ topics: ["a:many"] }), /--topic takes/);
  await assert.rejects(startBroker({ command: "/does/not/exist" }), /pip install ottla/);
});
