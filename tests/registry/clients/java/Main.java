// Registers, reads and compares schemas with Confluent's Java client, and sends records through a broker with its
// serializers. Prints what came of it.
// usage: Main client URL HEX…             (values that another client wrote, to be decoded)
//        Main records URL BOOTSTRAP HEX…

import io.confluent.kafka.schemaregistry.CompatibilityLevel;
import io.confluent.kafka.schemaregistry.avro.AvroSchema;
import io.confluent.kafka.schemaregistry.client.CachedSchemaRegistryClient;
import io.confluent.kafka.schemaregistry.client.SchemaMetadata;
import io.confluent.kafka.schemaregistry.client.rest.entities.Metadata;
import io.confluent.kafka.schemaregistry.client.rest.entities.SchemaReference;
import io.confluent.kafka.schemaregistry.client.rest.exceptions.RestClientException;
import io.confluent.kafka.serializers.KafkaAvroDeserializer;
import io.confluent.kafka.serializers.KafkaAvroSerializer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.stream.Collectors;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericRecord;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

public class Main {
    static final String ORDER = "{\"type\":\"record\",\"name\":\"Order\",\"namespace\":\"shop\",\"fields\":"
        + "[{\"name\":\"id\",\"type\":\"int\"}]}";
    static final String RENAMED = ORDER.replace("\"id\"", "\"number\"");
    static final String WIDER = ORDER.replace("}]}", "},{\"name\":\"note\",\"type\":\"string\",\"default\":\"\"}]}");
    static final String BASKET = "{\"type\":\"record\",\"name\":\"Basket\",\"namespace\":\"shop\",\"fields\":"
        + "[{\"name\":\"orders\",\"type\":{\"type\":\"array\",\"items\":\"Order\"}}]}";

    public static void main(String[] arguments) throws Exception {
        List<String> given = Arrays.asList(arguments).subList(2, arguments.length);
        Map<String, Object> found = new TreeMap<>();
        if (arguments[0].equals("client")) {
            client(arguments[1], given, found);
        } else {
            records(arguments[1], given.get(0), found);
        }
        System.out.println(json(found));
        System.exit(0);
    }

    static void client(String url, List<String> given, Map<String, Object> found) throws Exception {
        CachedSchemaRegistryClient client = new CachedSchemaRegistryClient(url, 100);
        AvroSchema order = new AvroSchema(ORDER);
        AvroSchema renamed = new AvroSchema(RENAMED);
        found.put("id", client.register("java-value", order));
        found.put("again", client.getId("java-value", order));
        found.put("version", client.getVersion("java-value", order));
        found.put("second", client.registerWithResponse("java-second", order, false, false).getVersion());
        found.put("incompatible", code(() -> client.register("java-value", renamed)));
        found.put("missing", code(() -> client.getLatestSchemaMetadata("nothing")));
        found.put("unknown_id", code(() -> client.getSchemaById(99999)));
        found.put("compatible", client.testCompatibility("java-value", renamed));
        found.put("reasons", client.testCompatibilityVerbose("java-value", renamed));
        client.register("java-value", new AvroSchema(WIDER));
        found.put("versions", client.getAllVersions("java-value"));
        SchemaMetadata latest = client.getLatestSchemaMetadata("java-value");
        found.put("latest", List.of(latest.getId(), latest.getVersion(), latest.getSchemaType(), latest.getSchema()));
        found.put("subjects_of_id", List.copyOf(client.getAllSubjectsById(client.getId("java-value", order))));

        AvroSchema basket = new AvroSchema(
            BASKET, List.of(new SchemaReference("shop.Order", "java-value", 1)), Map.of("shop.Order", ORDER), null);
        int basketId = client.register("java-basket", basket);
        AvroSchema read = (AvroSchema) new CachedSchemaRegistryClient(url, 100).getSchemaById(basketId);
        found.put("referenced", read.rawSchema().getField("orders").schema().getElementType().getFullName());
        found.put("referred", code(() -> client.deleteSchemaVersion("java-value", "1")));

        AvroSchema owned = new AvroSchema(WIDER).copy(new Metadata(null, Map.of("owner", "sales"), null), null);
        client.register("java-owned", owned);
        found.put("owned", client.getLatestWithMetadata("java-owned", Map.of("owner", "sales"), false).getVersion());
        found.put("not_owned", code(() -> client.getLatestWithMetadata("java-owned", Map.of("owner", "x"), false)));

        client.updateCompatibility("java-value", CompatibilityLevel.FULL.name);
        found.put("config", client.getCompatibility("java-value"));
        client.deleteConfig("java-value");
        found.put("no_config", code(() -> client.getCompatibility("java-value")));
        client.setMode("READONLY", "java-value");
        found.put("mode", client.getMode("java-value"));
        found.put("read_only", code(() -> client.register("java-value", renamed)));
        client.deleteMode("java-value");

        client.register(":.other:java-value", order);
        found.put("contexts", List.copyOf(client.getAllContexts()));
        found.put("subjects", List.copyOf(client.getAllSubjectsByPrefix(":.other:")));
        found.put("deleted", client.deleteSubject("java-second"));
        found.put("deleted_for_good", client.deleteSubject(Map.of(), "java-second", true));
        found.put("read", decoded(url, given.get(0)).toString());
    }

    static void records(String url, String bootstrap, Map<String, Object> found) throws Exception {
        Map<String, Object> values = new HashMap<>();
        for (String strategy : List.of("TopicNameStrategy", "RecordNameStrategy", "TopicRecordNameStrategy")) {
            String topic = "java-" + strategy.toLowerCase();
            Map<String, Object> options = serde(url);
            options.put("bootstrap.servers", bootstrap);
            options.put("value.subject.name.strategy", "io.confluent.kafka.serializers.subject." + strategy);
            options.put("auto.offset.reset", "earliest");
            send(topic, options);
            values.put(strategy, received(topic, options));
        }
        found.put("values", values);
    }

    static void send(String topic, Map<String, Object> options) throws Exception {
        Schema schema = new Schema.Parser().parse(ORDER);
        try (KafkaProducer<Object, Object> producer = new KafkaProducer<>(options)) {
            for (int id = 1; id <= 3; id++) {
                GenericRecord order = new GenericData.Record(schema);
                order.put("id", id);
                producer.send(new ProducerRecord<>(topic, 0, "key-" + id, order)).get();
            }
        }
    }

    static List<String> received(String topic, Map<String, Object> options) {
        List<String> texts = new ArrayList<>();
        try (KafkaConsumer<Object, Object> consumer = new KafkaConsumer<>(options)) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            while (texts.size() < 3) {
                for (ConsumerRecord<Object, Object> record : consumer.poll(Duration.ofMillis(200))) {
                    texts.add(record.key() + " " + record.value());
                }
            }
        }
        return texts;
    }

    static Map<String, Object> serde(String url) {
        Map<String, Object> options = new HashMap<>();
        options.put("schema.registry.url", url);
        options.put("key.serializer", KafkaAvroSerializer.class);
        options.put("value.serializer", KafkaAvroSerializer.class);
        options.put("key.deserializer", KafkaAvroDeserializer.class);
        options.put("value.deserializer", KafkaAvroDeserializer.class);
        return options;
    }

    static Object decoded(String url, String hex) {
        KafkaAvroDeserializer deserializer = new KafkaAvroDeserializer();
        deserializer.configure(serde(url), false);
        return deserializer.deserialize("any", HexFormat.of().parseHex(hex));
    }

    static List<Integer> code(Callable<?> call) throws Exception {
        try {
            call.call();
            return List.of();
        } catch (RestClientException refused) {
            return List.of(refused.getStatus(), refused.getErrorCode());
        }
    }

    static String json(Object value) {
        if (value instanceof Map) {
            return ((Map<?, ?>) value).entrySet().stream()
                .map(entry -> json(entry.getKey()) + ":" + json(entry.getValue()))
                .collect(Collectors.joining(",", "{", "}"));
        }
        if (value instanceof Collection) {
            return ((Collection<?>) value).stream().map(Main::json).collect(Collectors.joining(",", "[", "]"));
        }
        if (value instanceof Number || value instanceof Boolean || value == null) {
            return String.valueOf(value);
        }
        String text = value.toString().replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", "\\n");
        return '"' + text + '"';
    }
}
