// kafkajs: BOOTSTRAP TOPIC.
const { Kafka, logLevel } = require("kafkajs");

async function main(bootstrap, topic) {
  const kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.NOTHING });
  const producer = kafka.producer();
  await producer.connect();
  for (let number = 0; number < 3; number++) {
    await producer.send({ topic, messages: [{ key: "key", value: `hello ${number}` }] });
  }
  await producer.disconnect();

  const consumer = kafka.consumer({ groupId: "readers" });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  const values = [];
  await new Promise((done) =>
    consumer.run({
      eachMessage: async ({ message }) => {
        values.push(message.value.toString());
        if (values.length === 3) done();
      },
    }),
  );
  await consumer.disconnect();
  console.log("ok");
}

main(...process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exit(1);
});
