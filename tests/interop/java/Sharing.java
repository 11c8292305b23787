import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/** Share consumers of the Java client: opened, polled, told what became of records, closed. */
final class Sharing {
    private final String bootstrap;
    private final Map<String, KafkaShareConsumer<String, String>> consumers = new HashMap<>();
    private final Map<String, Map<String, ConsumerRecord<String, String>>> held = new HashMap<>();
    private int number;

    Sharing(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    Object run(String op, JsonNode args) {
        switch (op) {
            case "share_open": return open(args);
            case "share_poll": return poll(args);
            case "share_acknowledge": return acknowledge(args);
            case "share_commit": return commit(args);
            case "share_close": return close(args);
            default: throw new IllegalArgumentException(op);
        }
    }

    private Object open(JsonNode args) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", args.get("group").asText());
        settings.put("share.acknowledgement.mode", args.get("mode").asText());
        settings.put("max.poll.records", args.get("max_records").asText());
        StringDeserializer strings = new StringDeserializer();
        KafkaShareConsumer<String, String> consumer = new KafkaShareConsumer<>(settings, strings, strings);
        List<String> topics = new ArrayList<>();
        args.get("topics").forEach(topic -> topics.add(topic.asText()));
        consumer.subscribe(topics);
        String id = "share-" + number++;
        consumers.put(id, consumer);
        held.put(id, new HashMap<>());
        return id;
    }

    private Object poll(JsonNode args) {
        String id = args.get("id").asText();
        List<Map<String, Object>> records = new ArrayList<>();
        for (ConsumerRecord<String, String> record : consumers.get(id).poll(Duration.ofMillis(args.get("timeout_ms").asLong()))) {
            held.get(id).put(record.partition() + "-" + record.offset(), record);
            records.add(Map.of("partition", record.partition(), "offset", record.offset(), "value", record.value(),
                "delivery_count", record.deliveryCount().orElse((short) -1)));
        }
        return records;
    }

    private Object acknowledge(JsonNode args) {
        String id = args.get("id").asText();
        String place = args.get("partition").asText() + "-" + args.get("offset").asText();
        AcknowledgeType type = AcknowledgeType.valueOf(args.get("type").asText().toUpperCase(Locale.ROOT));
        consumers.get(id).acknowledge(held.get(id).get(place), type);
        return null;
    }

    private Object commit(JsonNode args) {
        List<String> errors = new ArrayList<>();
        Map<TopicIdPartition, Optional<KafkaException>> outcome = consumers.get(args.get("id").asText()).commitSync();
        outcome.forEach((place, error) -> error.ifPresent(one -> errors.add(place + ": " + one)));
        return errors;
    }

    private Object close(JsonNode args) {
        held.remove(args.get("id").asText());
        consumers.remove(args.get("id").asText()).close();
        return null;
    }
}
