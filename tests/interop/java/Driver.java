import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.regex.Pattern;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.MemberDescription;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.Exit;

/**
 * The Java client behind the driver protocol of tests/interop: one JSON request a line on stdin, one JSON answer a line
 * on stdout. The operation "tool" runs one of Kafka's command line tools in this JVM, which saves a JVM start a tool.
 */
public final class Driver {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Map<String, String> CONSUMER_SETTINGS = Map.ofEntries(
        Map.entry("fetch_max_bytes", "fetch.max.bytes"),
        Map.entry("max_partition_fetch_bytes", "max.partition.fetch.bytes"),
        Map.entry("fetch_min_bytes", "fetch.min.bytes"),
        Map.entry("fetch_max_wait_ms", "fetch.max.wait.ms"),
        Map.entry("session_timeout_ms", "session.timeout.ms"),
        Map.entry("heartbeat_interval_ms", "heartbeat.interval.ms"),
        Map.entry("max_poll_interval_ms", "max.poll.interval.ms"),
        Map.entry("request_timeout_ms", "request.timeout.ms"),
        Map.entry("auto_commit", "enable.auto.commit"),
        Map.entry("offset_reset", "auto.offset.reset"),
        Map.entry("client_id", "client.id"),
        Map.entry("instance_id", "group.instance.id"),
        Map.entry("protocol", "group.protocol"),
        Map.entry("remote_assignor", "group.remote.assignor"),
        Map.entry("auto_create", "allow.auto.create.topics"));
    private static final Map<String, String> ASSIGNORS = Map.of(
        "range", "org.apache.kafka.clients.consumer.RangeAssignor",
        "roundrobin", "org.apache.kafka.clients.consumer.RoundRobinAssignor",
        "sticky", "org.apache.kafka.clients.consumer.StickyAssignor",
        "cooperative-sticky", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");

    private static final Set<String> OWN_ADMIN_OPS = Set.of(
        "create_topic", "delete_topic", "delete_topic_id", "list_topics", "describe_topic", "describe_cluster",
        "groups_list", "group_describe", "group_delete");

    private final String bootstrap;
    private final Map<String, KafkaConsumer<byte[], byte[]>> consumers = new HashMap<>();
    private final Sharing sharing;
    private Admin admin;

    private Driver(String bootstrap) {
        this.bootstrap = bootstrap;
        this.sharing = new Sharing(bootstrap);
    }

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        Driver driver = new Driver(args[0]);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode request = JSON.readTree(line);
            Map<String, Object> answer = new HashMap<>();
            try {
                answer.put("ok", driver.run(request.get("op").asText(), request.get("args")));
            } catch (Throwable error) {
                answer.put("error", describe(error));
            }
            answers.println(JSON.writeValueAsString(answer));
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static Map<String, Object> describe(Throwable given) {
        Throwable error = given;
        while ((error instanceof ExecutionException || error instanceof CompletionException) && error.getCause() != null) {
            error = error.getCause();
        }
        Errors known = Errors.forException(error);
        Map<String, Object> described = new HashMap<>();
        described.put("code", known == Errors.UNKNOWN_SERVER_ERROR ? null : known.code());
        described.put("name", error.getClass().getSimpleName());
        described.put("text", String.valueOf(error.getMessage()));
        return described;
    }

    private Object run(String op, JsonNode args) throws Exception {
        switch (op) {
            case "info": return Map.of("client", "java", "version", org.apache.kafka.common.utils.AppInfoParser.getVersion());
            case "produce": return produce(args);
            case "read": return read(args);
            case "offsets": return Map.of(
                "earliest", listed(args, OffsetSpec.earliest()).offset(), "latest", listed(args, OffsetSpec.latest()).offset());
            case "offset_for_time": return found(listed(args, OffsetSpec.forTimestamp(args.get("timestamp").asLong())));
            case "max_timestamp": return found(listed(args, OffsetSpec.maxTimestamp()));
            case "tool": return tool(args);
            default: break;
        }
        if (op.startsWith("consumer_")) {
            return consumer(op, args);
        }
        if (op.startsWith("share_")) {
            return sharing.run(op, args);
        }
        if (OWN_ADMIN_OPS.contains(op)) {
            return op.startsWith("group") ? groups(op, args) : topics(op, args);
        }
        return new Administration(admin()).run(op, args);
    }

    // Bytes and records

    private static byte[] bytes(JsonNode node) {
        return node == null || node.isNull() ? null : Base64.getDecoder().decode(node.asText());
    }

    private static String text(byte[] data) {
        return data == null ? null : Base64.getEncoder().encodeToString(data);
    }

    private static Map<String, Object> record(ConsumerRecord<byte[], byte[]> record) {
        List<List<String>> headers = new ArrayList<>();
        for (Header header : record.headers()) {
            List<String> pair = new ArrayList<>();
            pair.add(header.key());
            pair.add(text(header.value()));
            headers.add(pair);
        }
        Map<String, Object> out = new HashMap<>();
        out.put("topic", record.topic());
        out.put("partition", record.partition());
        out.put("offset", record.offset());
        out.put("timestamp", record.timestamp());
        out.put("timestamp_type", record.timestampType().id);
        out.put("key", text(record.key()));
        out.put("value", text(record.value()));
        out.put("headers", headers);
        return out;
    }

    // Producing

    private Object produce(JsonNode args) throws Exception {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        config.put("compression.type", args.path("compression").asText("none"));
        int acks = args.path("acks").asInt(-1);
        config.put("acks", acks == -1 ? "all" : String.valueOf(acks));
        config.put("enable.idempotence", args.path("idempotent").asBoolean(false));
        config.put("linger.ms", args.path("linger_ms").asInt(5));
        config.put("max.block.ms", args.path("max_block_ms").asInt(30000));
        config.put("delivery.timeout.ms", 60000);
        if (args.hasNonNull("max_request_bytes")) {
            config.put("max.request.size", args.get("max_request_bytes").asInt());
            config.put("buffer.memory", 64 << 20);
        }
        List<Object> results = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
            List<Object> sent = new ArrayList<>();
            for (JsonNode given : args.get("records")) {
                List<Header> headers = new ArrayList<>();
                for (JsonNode pair : given.get("headers")) {
                    headers.add(new RecordHeader(pair.get(0).asText(), bytes(pair.get(1))));
                }
                Integer partition = given.hasNonNull("partition") ? given.get("partition").asInt() : null;
                Long timestamp = given.hasNonNull("timestamp") ? given.get("timestamp").asLong() : null;
                try {
                    sent.add(producer.send(new ProducerRecord<>(args.get("topic").asText(), partition, timestamp,
                        bytes(given.get("key")), bytes(given.get("value")), headers)));
                } catch (RuntimeException error) {
                    sent.add(error);
                }
                if (args.path("each").asBoolean(false)) {
                    producer.flush();
                }
            }
            producer.flush();
            for (Object one : sent) {
                results.add(outcome(one));
            }
        }
        return results;
    }

    private static Map<String, Object> outcome(Object sent) {
        try {
            if (sent instanceof RuntimeException) {
                throw (RuntimeException) sent;
            }
            RecordMetadata meta = (RecordMetadata) ((Future<?>) sent).get();
            return Map.of("partition", meta.partition(), "offset", meta.hasOffset() ? meta.offset() : -1L,
                "timestamp", meta.timestamp());
        } catch (Exception error) {
            return Map.of("error", describe(error));
        }
    }

    // Reading

    private KafkaConsumer<byte[], byte[]> open(JsonNode given, String group) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        if (group != null) {
            config.put("group.id", group);
        }
        config.put("enable.auto.commit", group != null);
        given.fields().forEachRemaining(field -> {
            if (CONSUMER_SETTINGS.containsKey(field.getKey())) {
                config.put(CONSUMER_SETTINGS.get(field.getKey()), field.getValue().asText());
            }
        });
        if (given.has("assignors")) {
            List<String> names = new ArrayList<>();
            given.get("assignors").forEach(name -> names.add(ASSIGNORS.get(name.asText())));
            config.put("partition.assignment.strategy", names);
        }
        return new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private Object read(JsonNode args) {
        String topic = args.get("topic").asText();
        JsonNode offset = args.path("offset");
        long deadline = System.currentTimeMillis() + args.path("timeout_ms").asInt(30000);
        int count = args.hasNonNull("count") ? args.get("count").asInt() : -1;
        List<Object> records = new ArrayList<>();
        com.fasterxml.jackson.databind.node.ObjectNode config = JSON.createObjectNode().put("offset_reset", "none");
        args.path("config").fields().forEachRemaining(field -> config.set(field.getKey(), field.getValue()));
        try (KafkaConsumer<byte[], byte[]> consumer = open(config, null)) {
            List<TopicPartition> where = new ArrayList<>();
            args.get("partitions").forEach(p -> where.add(new TopicPartition(topic, p.asInt())));
            consumer.assign(where);
            Map<TopicPartition, Long> begin = consumer.beginningOffsets(where);
            Map<TopicPartition, Long> end = consumer.endOffsets(where);
            where.forEach(p -> consumer.seek(p, offset.isNumber() ? offset.asLong() : begin.get(p)));
            while (count >= 0 ? records.size() < count : where.stream().anyMatch(p -> consumer.position(p) < end.get(p))) {
                if (System.currentTimeMillis() > deadline) {
                    throw new IllegalStateException("timed out after " + records.size() + " records");
                }
                for (ConsumerRecord<byte[], byte[]> one : consumer.poll(Duration.ofMillis(500))) {
                    records.add(record(one));
                }
            }
        }
        return count >= 0 ? records.subList(0, count) : records;
    }

    private ListOffsetsResultInfo listed(JsonNode args, OffsetSpec spec) throws Exception {
        TopicPartition place = new TopicPartition(args.get("topic").asText(), args.get("partition").asInt());
        return admin().listOffsets(Map.of(place, spec)).partitionResult(place).get();
    }

    private static Object found(ListOffsetsResultInfo info) {
        return info.offset() < 0 ? null : Map.of("offset", info.offset(), "timestamp", info.timestamp());
    }

    // Consumers that stay open

    private Object consumer(String op, JsonNode args) {
        String id = args.get("id").asText();
        if (op.equals("consumer_open")) {
            consumers.put(id, subscribed(args));
            return null;
        }
        KafkaConsumer<byte[], byte[]> consumer = consumers.get(id);
        TopicPartition place = args.has("topic") && args.has("partition")
            ? new TopicPartition(args.get("topic").asText(), args.get("partition").asInt()) : null;
        switch (op) {
            case "consumer_poll": return poll(consumer, args.path("timeout_ms").asInt(1000));
            case "consumer_seek":
                JsonNode offset = args.get("offset");
                if (offset.isNumber()) {
                    consumer.seek(place, offset.asLong());
                } else if (offset.asText().equals("end")) {
                    consumer.seekToEnd(List.of(place));
                } else {
                    consumer.seekToBeginning(List.of(place));
                }
                return null;
            case "consumer_position": return consumer.position(place);
            case "consumer_commit":
                if (!args.hasNonNull("offsets")) {
                    consumer.commitSync();
                    return null;
                }
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                for (JsonNode o : args.get("offsets")) {
                    offsets.put(new TopicPartition(o.get("topic").asText(), o.get("partition").asInt()),
                        new OffsetAndMetadata(o.get("offset").asLong(), o.path("metadata").asText("")));
                }
                consumer.commitSync(offsets);
                return null;
            case "consumer_committed":
                OffsetAndMetadata found = consumer.committed(Set.of(place)).get(place);
                return found == null ? null : Map.of("offset", found.offset(), "metadata", found.metadata());
            case "consumer_close":
                consumers.remove(id).close();
                return null;
            default: throw new IllegalArgumentException(op);
        }
    }

    private KafkaConsumer<byte[], byte[]> subscribed(JsonNode args) {
        JsonNode config = args.hasNonNull("config") ? args.get("config") : JSON.createObjectNode();
        KafkaConsumer<byte[], byte[]> consumer = open(config, args.path("group").isTextual() ? args.get("group").asText() : null);
        if (args.hasNonNull("assign")) {
            List<TopicPartition> where = new ArrayList<>();
            args.get("assign").forEach(pair -> where.add(new TopicPartition(pair.get(0).asText(), pair.get(1).asInt())));
            consumer.assign(where);
        } else if (args.hasNonNull("pattern")) {
            // The new protocol hands the expression to the broker, the old one matches it in the client.
            if (config.path("protocol").asText("classic").equals("consumer")) {
                consumer.subscribe(new SubscriptionPattern(args.get("pattern").asText()));
            } else {
                consumer.subscribe(Pattern.compile(args.get("pattern").asText()));
            }
        } else {
            List<String> topics = new ArrayList<>();
            args.get("topics").forEach(topic -> topics.add(topic.asText()));
            consumer.subscribe(topics);
        }
        return consumer;
    }

    private static Object poll(KafkaConsumer<byte[], byte[]> consumer, int timeoutMs) {
        List<Object> records = new ArrayList<>();
        ConsumerRecords<byte[], byte[]> polled = consumer.poll(Duration.ofMillis(timeoutMs));
        polled.forEach(one -> records.add(record(one)));
        return Map.of("records", records, "assignment", pairs(consumer.assignment()));
    }

    private static List<List<Object>> pairs(Collection<TopicPartition> partitions) {
        List<List<Object>> out = new ArrayList<>();
        partitions.stream()
            .sorted(Comparator.comparing(TopicPartition::topic).thenComparing(TopicPartition::partition))
            .forEach(p -> out.add(List.of(p.topic(), p.partition())));
        return out;
    }

    // Administration

    private Admin admin() {
        if (admin == null) {
            admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
        }
        return admin;
    }

    private Object topics(String op, JsonNode args) throws Exception {
        String topic = args.path("topic").asText();
        switch (op) {
            case "create_topic":
                Map<String, String> configs = new HashMap<>();
                args.path("configs").fields().forEachRemaining(f -> configs.put(f.getKey(), f.getValue().asText()));
                NewTopic made = new NewTopic(topic, Optional.of(args.path("partitions").asInt(1)),
                    Optional.of((short) args.path("replication").asInt(1))).configs(configs);
                return Map.of("topic_id", admin().createTopics(List.of(made)).topicId(topic).get().toString());
            case "delete_topic":
                admin().deleteTopics(List.of(topic)).all().get();
                return null;
            case "delete_topic_id":
                admin().deleteTopics(TopicCollection.ofTopicIds(List.of(Uuid.fromString(args.get("topic_id").asText())))).all().get();
                return null;
            case "list_topics":
                return new TreeSet<>(admin().listTopics(new ListTopicsOptions().listInternal(true)).names().get());
            case "describe_topic":
                return described(admin().describeTopics(List.of(topic)).allTopicNames().get().get(topic));
            case "describe_cluster":
                var cluster = admin().describeCluster();
                List<Object> nodes = new ArrayList<>();
                for (Node node : cluster.nodes().get()) {
                    nodes.add(Map.of("id", node.id(), "host", node.host(), "port", node.port()));
                }
                return Map.of("cluster_id", cluster.clusterId().get(), "controller", cluster.controller().get().id(), "nodes", nodes);
            default: throw new IllegalArgumentException(op);
        }
    }

    private static Object described(TopicDescription topic) {
        List<Object> partitions = new ArrayList<>();
        for (TopicPartitionInfo p : topic.partitions()) {
            partitions.add(Map.of("id", p.partition(), "leader", p.leader().id(),
                "replicas", p.replicas().stream().map(Node::id).toList(), "isr", p.isr().stream().map(Node::id).toList()));
        }
        return Map.of("topic_id", topic.topicId().toString(), "partitions", partitions);
    }

    private Object groups(String op, JsonNode args) throws Exception {
        String group = args.path("group").asText();
        switch (op) {
            case "groups_list":
                return new TreeSet<>(admin().listGroups().all().get().stream().map(GroupListing::groupId).toList());
            case "group_describe":
                ConsumerGroupDescription found = admin().describeConsumerGroups(List.of(group)).all().get().get(group);
                List<Object> members = new ArrayList<>();
                for (MemberDescription m : found.members()) {
                    Map<String, Object> member = new HashMap<>();
                    member.put("client_id", m.clientId());
                    member.put("host", m.host());
                    member.put("instance_id", m.groupInstanceId().orElse(null));
                    member.put("assignment", pairs(m.assignment().topicPartitions()));
                    members.add(member);
                }
                return Map.of("state", found.groupState().toString(), "type", found.type().toString(),
                    "protocol", found.partitionAssignor(), "members", members);
            case "group_delete":
                admin().deleteConsumerGroups(List.of(group)).all().get();
                return null;
            default: throw new IllegalArgumentException(op);
        }
    }

    // Kafka's command line tools

    private static final class Exited extends RuntimeException {
    }

    private Object tool(JsonNode args) throws Exception {
        List<String> words = new ArrayList<>();
        args.get("args").forEach(word -> words.add(word.asText()));
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        ByteArrayOutputStream err = new ByteArrayOutputStream();
        PrintStream oldOut = System.out;
        PrintStream oldErr = System.err;
        InputStream oldIn = System.in;
        int[] status = {-1};
        Exit.Procedure ended = (code, message) -> {
            if (status[0] < 0) {
                status[0] = code;
            }
            throw new Exited();
        };
        Exit.setExitProcedure(ended);
        Exit.setHaltProcedure(ended);
        System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
        System.setIn(new ByteArrayInputStream(args.path("stdin").asText("").getBytes(StandardCharsets.UTF_8)));
        try {
            Class.forName(args.get("name").asText()).getMethod("main", String[].class)
                .invoke(null, (Object) words.toArray(new String[0]));
        } catch (InvocationTargetException error) {
            if (!(error.getCause() instanceof Exited)) {
                error.getCause().printStackTrace();
                status[0] = 1;
            }
        } finally {
            System.out.flush();
            System.setOut(oldOut);
            System.setErr(oldErr);
            System.setIn(oldIn);
            Exit.resetExitProcedure();
            Exit.resetHaltProcedure();
        }
        return Map.of("status", Math.max(status[0], 0), "stdout", out.toString(StandardCharsets.UTF_8),
            "stderr", err.toString(StandardCharsets.UTF_8));
    }
}
