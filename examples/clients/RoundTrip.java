import java.time.Duration;
import java.util.Collections;
import java.util.Properties;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/** Java client: BOOTSTRAP TOPIC. */
public final class RoundTrip {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put("group.id", "readers");
        settings.put("auto.offset.reset", "earliest");
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            for (int number = 0; number < 3; number++) {
                producer.send(new ProducerRecord<>(arguments[1], "key", "hello " + number)).get();
            }
        }
        int seen = 0;
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            consumer.subscribe(Collections.singletonList(arguments[1]));
            long end = System.currentTimeMillis() + 30_000;
            while (seen < 3 && System.currentTimeMillis() < end) {
                seen += consumer.poll(Duration.ofMillis(200)).count();
            }
            consumer.commitSync();
        }
        System.out.println(seen == 3 ? "ok" : "read " + seen);
    }
}
