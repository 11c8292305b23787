import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Transactions of the Java client behind the driver protocol; the operations are in test_transactions_clients. */
public final class Transactions {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final long WAIT_MS = 30_000;
    private final String bootstrap;
    private final Map<String, KafkaProducer<String, String>> producers = new HashMap<>();

    private Transactions(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        Transactions driver = new Transactions(args[0]);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode request = JSON.readTree(line);
            Map<String, Object> answer = new HashMap<>();
            try {
                answer.put("ok", driver.run(request.get("op").asText(), request.get("args")));
            } catch (Exception error) {
                Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
                Map<String, Object> described = new HashMap<>();
                described.put("code", (int) Errors.forException(cause).code());
                described.put("name", cause.getClass().getSimpleName());
                described.put("text", String.valueOf(cause.getMessage()));
                answer.put("error", described);
            }
            answers.println(JSON.writeValueAsString(answer));
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private Object run(String op, JsonNode args) throws Exception {
        switch (op) {
            case "open":
                open(args);
                return null;
            case "begin":
                producer(args).beginTransaction();
                return null;
            case "send":
                send(args);
                return null;
            case "commit":
                producer(args).commitTransaction();
                return null;
            case "abort":
                producer(args).abortTransaction();
                return null;
            case "transform":
                transform(args);
                return null;
            case "read":
                return read(args);
            default:
                throw new IllegalArgumentException(op);
        }
    }

    private KafkaProducer<String, String> producer(JsonNode args) {
        return producers.get(args.get("id").asText());
    }

    private void open(JsonNode args) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        config.put("transactional.id", args.get("transactional_id").asText());
        config.put("transaction.timeout.ms", args.path("timeout_ms").asInt(60_000));
        config.put("max.block.ms", WAIT_MS);
        KafkaProducer<String, String> producer =
            new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        producers.put(args.get("id").asText(), producer);
    }

    private void send(JsonNode args) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonNode value : args.get("values")) {
            int partition = args.path("partition").asInt(0);
            sent.add(producer(args).send(
                new ProducerRecord<>(args.get("topic").asText(), partition, null, value.asText())));
        }
        producer(args).flush();
        for (Future<RecordMetadata> one : sent) {
            one.get();
        }
    }

    private KafkaConsumer<String, String> consumer(String group) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        config.put("group.id", group);
        config.put("auto.offset.reset", "earliest");
        config.put("enable.auto.commit", false);
        config.put("isolation.level", "read_committed");
        config.put("fetch.max.wait.ms", 50);
        config.put("max.poll.records", 4);
        return new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
    }

    private void transform(JsonNode args) {
        KafkaProducer<String, String> producer = producer(args);
        long deadline = System.currentTimeMillis() + WAIT_MS;
        try (KafkaConsumer<String, String> consumer = consumer(args.get("group").asText())) {
            consumer.subscribe(List.of(args.get("source").asText()));
            int left = args.get("count").asInt();
            while (left > 0 && System.currentTimeMillis() < deadline) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(500));
                if (records.isEmpty()) {
                    continue;
                }
                producer.beginTransaction();
                Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
                for (ConsumerRecord<String, String> record : records) {
                    producer.send(
                        new ProducerRecord<>(args.get("target").asText(), 0, null, record.value().toUpperCase()));
                    ends.put(
                        new TopicPartition(record.topic(), record.partition()),
                        new OffsetAndMetadata(record.offset() + 1));
                    left--;
                }
                producer.sendOffsetsToTransaction(ends, consumer.groupMetadata());
                producer.commitTransaction();
            }
        }
    }

    private List<String> read(JsonNode args) {
        List<String> values = new ArrayList<>();
        long deadline = System.currentTimeMillis() + WAIT_MS;
        try (KafkaConsumer<String, String> consumer = consumer("unused")) {
            TopicPartition place = new TopicPartition(args.get("topic").asText(), 0);
            consumer.assign(List.of(place));
            consumer.seekToBeginning(List.of(place));
            while (values.size() < args.get("count").asInt() && System.currentTimeMillis() < deadline) {
                consumer.poll(Duration.ofMillis(200)).forEach(record -> values.add(record.value()));
            }
        }
        return values;
    }
}
