const { startBroker } = require("..");

let broker;
beforeAll(async () => {
  broker = await startBroker();
}, 30_000);
afterAll(() => broker.stop());

test("a topic", async () => {
  await broker.createTopic("t", { partitions: 3 });
  expect((await broker.ask("GET", "/topics/t")).partitions).toBe(3);
});
