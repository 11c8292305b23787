"use strict";
// A Kafka broker of your own in tests: Ottla, in a child process. No dependencies.

const { spawn } = require("node:child_process");

const START_MS = 30_000;
const STOP_MS = 10_000;

class Broker {
  #child;
  #stopped;

  constructor(child, ready) {
    this.#child = child;
    this.bootstrap = ready.bootstrap;
    this.brokers = ready.bootstrap.split(",");
    this.controlUrl = ready.control;
    this.security = ready.security ?? null;
  }

  // -- topics and groups

  createTopic(name, { partitions = -1, config = {} } = {}) {
    return this.ask("POST", `/topics/${encodeURIComponent(name)}`, { partitions, config });
  }

  append(topic, records) {
    return this.ask("POST", `/topics/${encodeURIComponent(topic)}/records`, { records });
  }

  async records(topic) {
    return (await this.ask("GET", `/topics/${encodeURIComponent(topic)}/records`)).map(decoded);
  }

  async waitForRecords(topic, count = 1, { timeoutMs = 5000 } = {}) {
    const found = await this.ask("POST", `/topics/${encodeURIComponent(topic)}/wait`, { count, timeout: timeoutMs / 1000 });
    return found.map(decoded);
  }

  async lag(group, topic) {
    return (await this.ask("GET", `/groups/${encodeURIComponent(group)}/lag?of=${encodeURIComponent(topic)}`)).lag;
  }

  waitUntilStable(group, members, { timeoutMs = 5000 } = {}) {
    const path = `/groups/${encodeURIComponent(group)}/wait_until_stable`;
    return this.ask("POST", path, { members, timeout: timeoutMs / 1000 });
  }

  waitUntilCaughtUp(group, topic, { timeoutMs = 5000 } = {}) {
    const path = `/groups/${encodeURIComponent(group)}/wait_until_caught_up`;
    return this.ask("POST", path, { of: topic, timeout: timeoutMs / 1000 });
  }

  waitForRequest(api, { count = 1, timeoutMs = 5000 } = {}) {
    return this.ask("POST", "/requests/wait", { api, count, timeout: timeoutMs / 1000 });
  }

  // -- trouble, time, state

  async addFault(kind, options = {}) {
    const { id } = await this.ask("POST", "/faults", { kind, ...options });
    return {
      id,
      fired: async () => (await this.ask("GET", `/faults/${id}`)).fired,
      remove: () => this.ask("DELETE", `/faults/${id}`),
    };
  }

  clearFaults() {
    return this.ask("DELETE", "/faults");
  }

  advance(duration) {
    return this.ask("POST", "/clock/advance", duration);
  }

  reset() {
    return this.ask("POST", "/reset");
  }

  async snapshot() {
    return (await this.ask("POST", "/snapshots")).snapshot;
  }

  restore(snapshot) {
    return this.ask("POST", `/snapshots/${snapshot}/restore`);
  }

  down() {
    return this.ask("POST", "/broker/down");
  }

  up() {
    return this.ask("POST", "/broker/up");
  }

  /** Any request of the control endpoint; docs/faults.md lists them. */
  async ask(method, path, body) {
    const response = await fetch(this.controlUrl + path, {
      method,
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    const answer = await response.json();
    if (!response.ok) throw new Error(`${method} ${path}: ${answer.error}`);
    return answer;
  }

  /** End the process. Safe to call twice. */
  stop() {
    this.#stopped ??= ended(this.#child);
    return this.#stopped;
  }

  async [Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose")]() {
    await this.stop();
  }
}

function decoded(record) {
  return { ...record, key: bytesOf(record.key), value: bytesOf(record.value) };
}

function bytesOf(part) {
  if (part === null || part === undefined) return null;
  return typeof part === "string" ? Buffer.from(part) : Buffer.from(part.base64, "base64");
}

function ended(child) {
  return new Promise((resolve) => {
    if (child.exitCode !== null || child.signalCode !== null) return resolve();
    const timer = setTimeout(() => child.kill("SIGKILL"), STOP_MS);
    child.once("exit", () => {
      clearTimeout(timer);
      resolve();
    });
    child.kill("SIGTERM");
  });
}

/** Start a broker in memory, and wait until it is ready. */
async function startBroker({ args = [], topics = [], tls = false, users = {}, command } = {}) {
  const [program, ...first] = (command ?? process.env.OTTLA_COMMAND ?? "ottla").split(/\s+/);
  const child = spawn(
    program,
    [
      ...first,
      ...["serve", "--ephemeral", "--port", "0", "--control", "0", "--json", "--no-console"],
      ...["--preset", "test", "--exit-with-parent", "--log-level", "WARNING"],
      ...topics.flatMap((topic) => ["--topic", topic]),
      ...(tls ? ["--tls"] : []),
      ...Object.entries(users).flatMap(([name, password]) => ["--user", `${name}:${password}`]),
      ...args,
    ],
    { stdio: ["ignore", "pipe", "pipe"] },
  );
  const ready = await new Promise((resolve, reject) => {
    let out = "";
    let err = "";
    const timer = setTimeout(() => fail(`the broker was not ready within ${START_MS / 1000} s`), START_MS);
    const fail = (why) => {
      clearTimeout(timer);
      child.kill("SIGKILL");
      reject(new Error(why));
    };
    child.once("error", (error) => fail(`cannot run ${program}: ${error.message} (pip install ottla, or set OTTLA_COMMAND)`));
    child.once("close", () => fail(`the broker did not start: ${err.trim()}`));
    child.stderr.on("data", (data) => (err += data));
    child.stdout.on("data", (data) => {
      out += data;
      if (!out.includes("\n")) return;
      clearTimeout(timer);
      child.removeAllListeners("close");
      resolve(JSON.parse(out.slice(0, out.indexOf("\n"))));
    });
  });
  // The test runner may end while the broker still runs: --exit-with-parent stops it then.
  child.unref();
  child.stdout.unref?.();
  child.stderr.unref?.();
  return new Broker(child, ready);
}

module.exports = { Broker, startBroker };
