// @platformatic/kafka: BOOTSTRAP TOPIC.
import { Consumer, Producer, stringDeserializers, stringSerializers } from "@platformatic/kafka";

const [bootstrap, topic] = process.argv.slice(2);
const common = { clientId: "example", bootstrapBrokers: [bootstrap], autocreateTopics: true };
const producer = new Producer({ ...common, serializers: stringSerializers });
for (let number = 0; number < 3; number++) {
  await producer.send({ messages: [{ topic, key: "key", value: `hello ${number}` }] });
}
await producer.close();

const consumer = new Consumer({ ...common, groupId: "readers", deserializers: stringDeserializers });
const stream = await consumer.consume({ topics: [topic], mode: "earliest", autocommit: true });
let seen = 0;
for await (const message of stream) {
  seen += message.value.startsWith("hello") ? 1 : 0;
  if (seen === 3) break;
}
await consumer.close(true);
console.log("ok");
