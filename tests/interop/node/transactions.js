// Transactions of kafkajs behind the driver protocol; the operations are in test_transactions_clients.
'use strict';

const readline = require('readline');
const { Kafka, logLevel } = require('kafkajs');

const kafka = new Kafka({ brokers: [process.argv[2]], clientId: 'kafkajs', logLevel: logLevel.NOTHING, retry: { retries: 8 } });
const producers = new Map();
const transactions = new Map();

// kafkajs runs consumers in the background; this collects until enough came.
async function consume(topic, group, count, each, partition = null) {
  const consumer = kafka.consumer({ groupId: group, readUncommitted: false, maxWaitTimeInMs: 50 });
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  let left = count;
  await new Promise((resolve, reject) => {
    consumer
      .run({
        autoCommit: false,
        eachBatch: async ({ batch }) => {
          try {
            if (partition !== null && batch.partition !== partition) return;
            if (batch.messages.length) await each(batch);
            left -= batch.messages.length;
            if (left <= 0) resolve();
          } catch (error) {
            reject(error);
          }
        },
      })
      .catch(reject);
  });
  await consumer.disconnect();
}

const operations = {
  async open({ id, transactional_id, timeout_ms = 60000 }) {
    const producer = kafka.producer({
      transactionalId: transactional_id,
      transactionTimeout: timeout_ms,
      maxInFlightRequests: 1,
      idempotent: true,
    });
    await producer.connect();
    producers.set(id, producer);
  },
  async begin({ id }) {
    transactions.set(id, await producers.get(id).transaction());
  },
  async send({ id, topic, values, partition = 0 }) {
    await transactions.get(id).send({ topic, acks: -1, messages: values.map((value) => ({ value, partition })) });
  },
  async commit({ id }) {
    await transactions.get(id).commit();
  },
  async abort({ id }) {
    await transactions.get(id).abort();
  },
  async transform({ id, source, target, group, count }) {
    await consume(source, group, count, async (batch) => {
      const transaction = await producers.get(id).transaction();
      const messages = batch.messages.map((message) => ({ value: message.value.toString().toUpperCase(), partition: 0 }));
      await transaction.send({ topic: target, acks: -1, messages });
      const offset = (BigInt(batch.lastOffset()) + 1n).toString();
      await transaction.sendOffsets({
        consumerGroupId: group,
        topics: [{ topic: source, partitions: [{ partition: batch.partition, offset }] }],
      });
      await transaction.commit();
    });
  },
  async read({ topic, count }) {
    const values = [];
    await consume(topic, `read-${topic}-${Date.now()}`, count, async (batch) => {
      values.push(...batch.messages.map((message) => message.value.toString()));
    }, 0);
    return values;
  },
};

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const { op, args } = JSON.parse(line);
    let answer;
    try {
      const value = await operations[op](args);
      answer = { ok: value === undefined ? null : value };
    } catch (error) {
      const cause = error.cause && error.cause.code !== undefined ? error.cause : error;
      const code = typeof cause.code === 'number' ? cause.code : null;
      answer = { error: { code, name: cause.type || cause.name, text: String(error.message) } };
    }
    process.stdout.write(`${JSON.stringify(answer)}\n`);
  }
  process.exit(0);
}

main();
