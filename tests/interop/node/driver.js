// kafkajs behind the driver protocol of tests/interop: one JSON request a line on stdin, one JSON answer a line on stdout.
'use strict';

const readline = require('readline');
const { Kafka, CompressionTypes, CompressionCodecs, AssignerProtocol, PartitionAssigners, logLevel } = require('kafkajs');

// kafkajs ships gzip only and leaves the other codecs to its users; these are plain JavaScript, so nothing is compiled.
const snappyMagic = Buffer.from([0x82, 0x53, 0x4e, 0x41, 0x50, 0x50, 0x59, 0x00]);
CompressionCodecs[CompressionTypes.Snappy] = () => ({
  async compress(encoder) {
    return Buffer.from(require('snappyjs').compress(encoder.buffer));
  },
  async decompress(data) {
    const snappy = require('snappyjs');
    if (!data.subarray(0, 8).equals(snappyMagic)) return Buffer.from(snappy.uncompress(data));
    const parts = [];
    for (let at = 16; at < data.length; ) {
      const size = data.readInt32BE(at);
      parts.push(Buffer.from(snappy.uncompress(data.subarray(at + 4, at + 4 + size))));
      at += 4 + size;
    }
    return Buffer.concat(parts);
  },
});
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  async compress() {
    throw new Error('lz4js writes dependent blocks, which brokers refuse');
  },
  async decompress(data) {
    return Buffer.from(require('lz4js').decompress(data));
  },
});
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  async compress() {
    throw new Error('no zstd compressor in plain JavaScript');
  },
  async decompress(data) {
    return Buffer.from(require('fzstd').decompress(data));
  },
});

const codecs = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
};
const kafka = new Kafka({ brokers: process.argv[2].split(','), clientId: 'kafkajs', logLevel: logLevel.NOTHING, retry: { retries: 8 } });
const unb64 = (text) => (text === null || text === undefined ? null : Buffer.from(text, 'base64'));
const b64 = (data) => (data === null || data === undefined ? null : Buffer.from(data).toString('base64'));

function headersIn(pairs) {
  const headers = {};
  for (const [name, value] of pairs) {
    if (name in headers) headers[name] = [].concat(headers[name], unb64(value));
    else headers[name] = unb64(value);
  }
  return headers;
}

// kafkajs keeps headers in an object, so only the order of first appearance survives.
function headersOut(headers) {
  return Object.entries(headers || {}).flatMap(([name, value]) =>
    (Array.isArray(value) ? value : [value]).map((one) => [name, b64(one)]));
}

const record = (topic, partition, m) => ({
  topic, partition, offset: Number(m.offset), timestamp: Number(m.timestamp), timestamp_type: null,
  key: b64(m.key), value: b64(m.value), headers: headersOut(m.headers),
});

function describe(error) {
  let cause = error;
  while (cause.cause && cause.code === undefined) cause = cause.cause;
  if (Array.isArray(cause.errors) && cause.errors.length) cause = cause.errors[0];
  if (Array.isArray(cause.groups) && cause.groups.length) cause = cause.groups[0].error || cause;
  return { code: typeof cause.code === 'number' ? cause.code : null, name: cause.type || cause.name, text: cause.message };
}

async function withAdmin(work) {
  const admin = kafka.admin();
  await admin.connect();
  try {
    return await work(admin);
  } finally {
    await admin.disconnect();
  }
}

// A kafkajs consumer pushes; a Member keeps what arrived until somebody polls.
class Member {
  constructor(group, config) {
    const settings = { groupId: group, allowAutoTopicCreation: false, maxWaitTimeInMs: config.fetch_max_wait_ms || 500 };
    if (config.session_timeout_ms) settings.sessionTimeout = config.session_timeout_ms;
    if (config.heartbeat_interval_ms) settings.heartbeatInterval = config.heartbeat_interval_ms;
    if (config.max_partition_fetch_bytes) settings.maxBytesPerPartition = config.max_partition_fetch_bytes;
    if (config.fetch_max_bytes) settings.maxBytes = config.fetch_max_bytes;
    settings.partitionAssigners = [PartitionAssigners.roundRobin];
    const client = config.client_id ? new Kafka({
      brokers: process.argv[2].split(','), clientId: config.client_id, logLevel: logLevel.NOTHING,
    }) : kafka;
    this.consumer = client.consumer(settings);
    this.config = config;
    this.arrived = [];
    this.assigned = [];
    this.wake = () => {};
  }

  async start(topics) {
    const { GROUP_JOIN, REBALANCING } = this.consumer.events;
    this.consumer.on(GROUP_JOIN, ({ payload }) => {
      this.assigned = Object.entries(payload.memberAssignment).flatMap(([topic, list]) => list.map((p) => [topic, p]));
    });
    this.consumer.on(REBALANCING, () => { this.assigned = []; });
    await this.consumer.connect();
    await this.consumer.subscribe({ topics, fromBeginning: this.config.offset_reset === 'earliest' });
    await this.consumer.run({
      autoCommit: this.config.auto_commit !== false,
      eachMessage: async ({ topic, partition, message }) => {
        this.arrived.push(record(topic, partition, message));
        this.wake();
      },
    });
  }

  async poll(timeoutMs) {
    if (!this.arrived.length) {
      await new Promise((resolve) => {
        const timer = setTimeout(resolve, timeoutMs);
        this.wake = () => { clearTimeout(timer); setTimeout(resolve, 20); };
      });
      this.wake = () => {};
    }
    const records = this.arrived;
    this.arrived = [];
    this.last = this.last || {};
    for (const r of records) this.last[`${r.partition} ${r.topic}`] = r;
    const assignment = [...this.assigned].sort((a, b) => (a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : a[1] - b[1]));
    return { records, assignment };
  }
}

const members = {};
const ops = {
  async info() {
    return { client: 'kafkajs', version: require('kafkajs/package.json').version };
  },

  async produce({ topic, records, compression = 'none', acks = -1, idempotent = false, each = false }) {
    const producer = kafka.producer({ idempotent, maxInFlightRequests: idempotent ? 1 : null, allowAutoTopicCreation: true });
    await producer.connect();
    const send = async (list) => {
      const messages = list.map((r) => ({
        key: unb64(r.key), value: unb64(r.value), headers: headersIn(r.headers),
        partition: r.partition === null ? undefined : r.partition,
        timestamp: r.timestamp === null ? undefined : String(r.timestamp),
      }));
      try {
        const done = await producer.send({ topic, acks, compression: codecs[compression], messages });
        const next = Object.fromEntries((done || []).map((d) => [d.partition, Number(d.baseOffset)]));
        return list.map((r) => ({
          partition: r.partition, offset: r.partition in next ? next[r.partition]++ : -1, timestamp: r.timestamp,
        }));
      } catch (error) {
        return list.map(() => ({ error: describe(error) }));
      }
    };
    try {
      const sent = [];
      if (each) for (const one of records) sent.push(...(await send([one])));
      else sent.push(...(await send(records)));
      return sent;
    } finally {
      await producer.disconnect();
    }
  },

  // kafkajs has no consumer without a group: this one gets a group of its own and seeks.
  async read({ topic, partitions, offset = 'earliest', count = null, config = {}, timeout_ms = 30000 }) {
    const marks = await withAdmin((admin) => admin.fetchTopicOffsets(topic));
    const start = (p) => (offset === 'earliest' ? Number(marks.find((m) => m.partition === p).low) : offset);
    const end = Object.fromEntries(marks.map((m) => [m.partition, Number(m.high)]));
    const unread = new Set(partitions.filter((p) => start(p) < end[p]));
    const member = new Member(`read-${process.pid}-${Math.random()}`, { ...config, offset_reset: 'earliest', auto_commit: false });
    const records = [];
    const done = () => (count === null ? unread.size === 0 : records.length >= count);
    if (done()) return records;
    try {
      await member.start([topic]);
      for (const p of marks.map((m) => m.partition)) {
        if (partitions.includes(p)) member.consumer.seek({ topic, partition: p, offset: String(start(p)) });
        else member.consumer.pause([{ topic, partitions: [p] }]);
      }
      const deadline = Date.now() + timeout_ms;
      while (!done()) {
        if (Date.now() > deadline) throw new Error(`timed out after ${records.length} records`);
        for (const r of (await member.poll(500)).records) {
          // What was fetched before the seek took hold is not asked for.
          if (!partitions.includes(r.partition) || r.offset < start(r.partition)) continue;
          if (records.some((seen) => seen.partition === r.partition && seen.offset === r.offset)) continue;
          records.push(r);
          if (r.offset + 1 >= end[r.partition]) unread.delete(r.partition);
        }
      }
      return count === null ? records : records.slice(0, count);
    } finally {
      await member.consumer.disconnect();
    }
  },

  async offsets({ topic, partition }) {
    const marks = await withAdmin((admin) => admin.fetchTopicOffsets(topic));
    const mark = marks.find((m) => m.partition === partition);
    return { earliest: Number(mark.low), latest: Number(mark.high) };
  },

  // kafkajs answers with the end offset where nothing is that late, so the caller can only compare offsets.
  async offset_for_time({ topic, partition, timestamp }) {
    const marks = await withAdmin((admin) => admin.fetchTopicOffsetsByTimestamp(topic, timestamp));
    return { offset: Number(marks.find((m) => m.partition === partition).offset), timestamp: null };
  },

  async consumer_open({ id, group, topics, config = {} }) {
    members[id] = new Member(group, config || {});
    await members[id].start(topics);
    return null;
  },

  async consumer_poll({ id, timeout_ms = 1000 }) {
    return members[id].poll(timeout_ms);
  },

  async consumer_seek({ id, topic, partition, offset }) {
    members[id].consumer.seek({ topic, partition, offset: String(offset) });
    return null;
  },

  async consumer_commit({ id, offsets }) {
    const places = offsets || Object.values(members[id].last || {}).map((r) => ({ ...r, offset: r.offset + 1 }));
    await members[id].consumer.commitOffsets(places.map((o) => ({
      topic: o.topic, partition: o.partition, offset: String(o.offset), metadata: o.metadata || '',
    })));
    return null;
  },

  async consumer_committed({ group, topic, partition }) {
    const found = await withAdmin((admin) => admin.fetchOffsets({ groupId: group, topics: [topic] }));
    const place = found[0].partitions.find((p) => p.partition === partition);
    return !place || Number(place.offset) < 0 ? null : { offset: Number(place.offset), metadata: place.metadata || '' };
  },

  async consumer_close({ id }) {
    const member = members[id];
    delete members[id];
    await member.consumer.disconnect();
    return null;
  },

  async create_topic({ topic, partitions = 1, replication = 1, configs = {} }) {
    const configEntries = Object.entries(configs || {}).map(([name, value]) => ({ name, value }));
    const made = await withAdmin((admin) => admin.createTopics({
      topics: [{ topic, numPartitions: partitions, replicationFactor: replication, configEntries }],
    }));
    if (!made) throw Object.assign(new Error('topic exists'), { code: 36, type: 'TOPIC_ALREADY_EXISTS' });
    return null;
  },

  async delete_topic({ topic }) {
    await withAdmin((admin) => admin.deleteTopics({ topics: [topic] }));
    return null;
  },

  async list_topics() {
    return (await withAdmin((admin) => admin.listTopics())).sort();
  },

  async describe_topic({ topic }) {
    const found = await withAdmin((admin) => admin.fetchTopicMetadata({ topics: [topic] }));
    const partitions = found.topics[0].partitions.map((p) => ({ id: p.partitionId, leader: p.leader, replicas: p.replicas, isr: p.isr }));
    return { partitions: partitions.sort((a, b) => a.id - b.id) };
  },

  async describe_cluster() {
    const found = await withAdmin((admin) => admin.describeCluster());
    return {
      cluster_id: found.clusterId, controller: found.controller,
      nodes: found.brokers.map((b) => ({ id: b.nodeId, host: b.host, port: b.port })),
    };
  },

  async groups_list() {
    return (await withAdmin((admin) => admin.listGroups())).groups.map((g) => g.groupId).sort();
  },

  async group_describe({ group }) {
    const found = (await withAdmin((admin) => admin.describeGroups([group]))).groups[0];
    const described = found.members.map((m) => {
      const decoded = AssignerProtocol.MemberAssignment.decode(m.memberAssignment);
      const assignment = Object.entries((decoded && decoded.assignment) || {}).flatMap(([t, list]) => list.map((p) => [t, p]));
      return { client_id: m.clientId, host: m.clientHost, assignment };
    });
    return { state: found.state, protocol: found.protocol, members: described };
  },

  async group_delete({ group }) {
    await withAdmin((admin) => admin.deleteGroups([group]));
    return null;
  },
};

Object.assign(ops, require('./administration')(withAdmin));

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const { op, args } = JSON.parse(line);
    let answer;
    try {
      if (!(op in ops)) throw new Error(`kafkajs has no ${op}`);
      answer = { ok: await ops[op](args) };
    } catch (error) {
      process.stderr.write(`${error.stack}\n`);
      answer = { error: describe(error) };
    }
    process.stdout.write(`${JSON.stringify(answer)}\n`);
  }
  process.exit(0);
}

main();
