package io.github.ottla;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;

class OttlaExtensionTest {
    private static final Duration PATIENCE = Duration.ofSeconds(20);

    @RegisterExtension
    static final OttlaExtension ottla = new OttlaExtension("--topic", "orders:2");

    @Test
    void aConsumerReadsAndTheBrokerSeesItCatchUp(OttlaBroker broker) {
        broker.append("orders", "a", "b");
        assertEquals(2, broker.lag("billing", "orders"));
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", broker.bootstrap(), "group.id", "billing", "auto.offset.reset", "earliest");
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of("orders"));
            int read = 0;
            while (read < 2) read += consumer.poll(Duration.ofMillis(500)).count();
            consumer.commitSync();
            broker.waitUntilStable("billing", 1, PATIENCE);
            broker.waitUntilCaughtUp("billing", "orders", PATIENCE);
            broker.waitForRequest("OffsetCommit", PATIENCE);
        }
    }

    @Test
    void faultsTimeAndSnapshots(OttlaBroker broker) throws Exception {
        broker.createTopic("t", 1, Map.of("retention.ms", "1000"));
        long state = broker.snapshot();
        long fault = broker.addFault("error", Map.of("api", "Produce", "error", "NOT_LEADER_OR_FOLLOWER", "times", 1));
        Map<String, Object> settings = Map.of("bootstrap.servers", broker.bootstrap());
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            producer.send(new ProducerRecord<>("t", "ké\"y", "v")).get();
        }
        assertEquals(1, broker.fired(fault));
        assertArrayEquals("ké\"y".getBytes("UTF-8"), broker.waitForRecords("t", 1, PATIENCE).get(0).key());
        broker.restore(state);
        assertEquals(List.of(), broker.records("t"));
        broker.advance(Duration.ofDays(1));
        broker.clearFaults();
        var refused = assertThrows(IllegalStateException.class, () -> broker.records("nope"));
        assertTrue(refused.getMessage().contains("there is no topic 'nope'"), refused.getMessage());
    }

    @Test
    void aSecuredBroker() throws Exception {
        try (OttlaBroker broker = OttlaBroker.start("--tls", "--user", "alice:secret")) {
            Properties settings = new Properties();
            try (var file = java.nio.file.Files.newBufferedReader(broker.clientProperties())) {
                settings.load(file);
            }
            settings.put("bootstrap.servers", broker.bootstrap());
            try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
                producer.send(new ProducerRecord<>("t", "over TLS")).get();
            }
            assertEquals("over TLS", new String(broker.records("t").get(0).value()));
        }
    }

    @Test
    void mistakesAreExplained() {
        var refused = assertThrows(IllegalStateException.class, () -> OttlaBroker.start("--topic", "a:many"));
        assertTrue(refused.getMessage().contains("--topic takes"), refused.getMessage());
    }
}
