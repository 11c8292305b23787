import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;

/** Kafka Streams: BOOTSTRAP TOPIC. Writes the values of TOPIC in upper case to TOPIC-upper. */
public final class Upper {
    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        String source = arguments[1];
        String target = source + "-upper";

        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(source).mapValues(value -> value.toUpperCase()).to(target);

        Path state = Files.createTempDirectory("streams"); // a fresh one for each test
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "upper-" + source);
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, state.toString());
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put("auto.offset.reset", "earliest");

        Properties client = new Properties();
        client.put("bootstrap.servers", bootstrap);
        client.put("group.id", "readers");
        client.put("auto.offset.reset", "earliest");
        client.put("isolation.level", "read_committed");
        for (String side : List.of("key", "value")) {
            client.put(side + ".serializer", "org.apache.kafka.common.serialization.StringSerializer");
            client.put(side + ".deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        }

        try (Admin admin = Admin.create(client)) { // Kafka Streams needs topics that exist
            admin.createTopics(List.of(new NewTopic(source, 1, (short) 1), new NewTopic(target, 1, (short) 1))).all().get();
        }

        int seen = 0;
        try (KafkaStreams streams = new KafkaStreams(builder.build(), settings);
             KafkaProducer<String, String> producer = new KafkaProducer<>(client);
             KafkaConsumer<String, String> consumer = new KafkaConsumer<>(client)) {
            streams.start();
            for (int number = 0; number < 3; number++) {
                producer.send(new ProducerRecord<>(source, "key", "hello " + number)).get();
            }
            consumer.subscribe(List.of(target));
            long end = System.currentTimeMillis() + 90_000;
            while (seen < 3 && System.currentTimeMillis() < end) {
                for (var record : consumer.poll(Duration.ofMillis(200))) {
                    System.out.println(record.value());
                    seen++;
                }
            }
        }
        System.out.println(seen == 3 ? "ok" : "read " + seen);
    }
}
