/** A record as it is stored. */
export interface StoredRecord {
  partition: number;
  offset: number;
  timestamp: number;
  key: Buffer | null;
  value: Buffer | null;
  headers: Array<[string, string | { base64: string } | null]>;
}

export interface Fault {
  id: number;
  /** How often it has struck. */
  fired(): Promise<number>;
  remove(): Promise<unknown>;
}

export interface Options {
  /** Further options of `ottla serve`, such as `["--set", "num.partitions=3"]`. */
  args?: string[];
  /** Topics to make: `"orders"`, `"orders:3"`, `"orders:3:cleanup.policy=compact"`. */
  topics?: string[];
  /** Serve TLS; `security.ca_file` is the certificate authority. */
  tls?: boolean;
  /** Have clients log in, by name and password. */
  users?: Record<string, string>;
  /** The command; `$OTTLA_COMMAND` or `ottla` by default. */
  command?: string;
}

export interface Duration {
  days?: number;
  hours?: number;
  minutes?: number;
  seconds?: number;
  ms?: number;
}

export interface Timeout {
  timeoutMs?: number;
}

/** A running broker. Methods reject with what is wrong. */
export class Broker {
  private constructor();
  /** `host:port`, for `bootstrap.servers`. */
  readonly bootstrap: string;
  /** The same as a list, for kafkajs. */
  readonly brokers: string[];
  readonly controlUrl: string;
  readonly security: { protocol: string; ca_file: string | null; client_config: string } | null;
  createTopic(name: string, options?: { partitions?: number; config?: Record<string, string | number> }): Promise<unknown>;
  /** Write records without a client: a value, or `[key, value]`, or `[key, value, headers]`. */
  append(topic: string, records: unknown[]): Promise<unknown>;
  /** What a read_committed consumer sees. */
  records(topic: string): Promise<StoredRecord[]>;
  waitForRecords(topic: string, count?: number, options?: Timeout): Promise<StoredRecord[]>;
  /** How many records of a topic a group has still to read. */
  lag(group: string, topic: string): Promise<number>;
  waitUntilStable(group: string, members: number, options?: Timeout): Promise<unknown>;
  waitUntilCaughtUp(group: string, topic: string, options?: Timeout): Promise<unknown>;
  waitForRequest(api: string, options?: Timeout & { count?: number }): Promise<unknown>;
  /** `addFault("error", { api: "Produce", error: "NOT_LEADER_OR_FOLLOWER", times: 2 })`; see docs/faults.md. */
  addFault(kind: string, options?: Record<string, unknown>): Promise<Fault>;
  clearFaults(): Promise<unknown>;
  /** Move the broker's clock; what falls due happens before this resolves. */
  advance(duration: Duration): Promise<unknown>;
  /** Remove all topics, groups and faults. */
  reset(): Promise<unknown>;
  snapshot(): Promise<number>;
  restore(snapshot: number): Promise<unknown>;
  down(): Promise<unknown>;
  up(): Promise<unknown>;
  ask(method: string, path: string, body?: unknown): Promise<any>;
  stop(): Promise<void>;
}

/** Start a broker in memory, and wait until it is ready. */
export function startBroker(options?: Options): Promise<Broker>;
