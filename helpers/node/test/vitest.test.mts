import { afterAll, beforeAll, expect, test } from "vitest";
import { type Broker, startBroker } from "../index.js";

let broker: Broker;
beforeAll(async () => {
  broker = await startBroker({ tls: true, users: { alice: "secret" } });
});
afterAll(() => broker?.stop());

test("typed, and secured", async () => {
  expect(broker.security?.protocol).toBe("SASL_SSL");
  await broker.append("t", [{ id: 1 }]);
  expect((await broker.records("t"))[0].value?.toString()).toBe('{"id": 1}');
});
