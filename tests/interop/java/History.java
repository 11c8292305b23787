import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.PrintStream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Transactions of the Java client for the checker of histories: one operation a line on stdout, until stdin ends. */
public final class History {
    private static final ObjectMapper JSON = new ObjectMapper();
    private final String bootstrap;
    private final String topic;
    private final int partitions;
    private final int process;
    private final Random chance;
    private long value;
    private KafkaProducer<String, String> producer;

    private History(String[] args) {
        bootstrap = args[0];
        topic = args[1];
        partitions = Integer.parseInt(args[2]);
        process = Integer.parseInt(args[3]);
        chance = new Random(Long.parseLong(args[4]));
        value = (process + 1) * 1_000_000_000L;
    }

    public static void main(String[] args) throws Exception {
        PrintStream lines = System.out;
        System.setOut(System.err);
        Thread watcher = new Thread(() -> {
            try {
                while (System.in.read() >= 0) { }
            } catch (java.io.IOException ended) {
                // as good as the end
            }
            stopped = true;
        });
        watcher.setDaemon(true);
        watcher.start();
        new History(args).work(lines);
        lines.flush();
        Runtime.getRuntime().halt(0);
    }

    private static volatile boolean stopped;

    private void work(PrintStream lines) {
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(Map.of(
            "bootstrap.servers", bootstrap, "isolation.level", "read_committed", "enable.auto.commit", "false",
            "auto.offset.reset", "none", "fetch.max.wait.ms", "20", "max.poll.records", "50",
            "key.deserializer", StringDeserializer.class.getName(), "value.deserializer", StringDeserializer.class.getName()));
        List<TopicPartition> places = new ArrayList<>();
        for (int index = 0; index < partitions; index++) {
            places.add(new TopicPartition(topic, index));
        }
        consumer.assign(places);
        places.forEach(place -> consumer.seek(place, 0));
        boolean moves = true;
        while (!stopped) {
            if (producer == null && !connect()) {
                continue;
            }
            ObjectNode operation = JSON.createObjectNode().put("process", process);
            if (moves) {
                operation.put("moves", true);
                moves = false;
            }
            operation.put("outcome", transact(consumer, operation.putArray("steps")));
            lines.println(operation);
            lines.flush();
        }
    }

    private boolean connect() {
        KafkaProducer<String, String> made = new KafkaProducer<>(Map.of(
            "bootstrap.servers", bootstrap, "transactional.id", "history-" + process, "transaction.timeout.ms", "8000",
            "max.block.ms", "15000", "delivery.timeout.ms", "15000", "request.timeout.ms", "5000", "linger.ms", "0",
            "key.serializer", StringSerializer.class.getName(), "value.serializer", StringSerializer.class.getName()));
        try {
            made.initTransactions();
        } catch (RuntimeException error) {
            made.close(Duration.ZERO);
            return false;
        }
        producer = made;
        return true;
    }

    private String transact(KafkaConsumer<String, String> consumer, ArrayNode steps) {
        boolean commitWasSent = false;
        try {
            producer.beginTransaction();
            for (int count = 1 + chance.nextInt(3); count > 0; count--) {
                if (chance.nextDouble() < 0.5) {
                    poll(consumer, steps);
                }
                int partition = chance.nextInt(partitions);
                ArrayNode step = steps.addArray().add("send").add(partition).add(++value).addNull();
                var sent = producer.send(new ProducerRecord<>(topic, partition, null, Long.toString(value)));
                step.set(3, JSON.getNodeFactory().numberNode(sent.get(20, TimeUnit.SECONDS).offset()));
            }
            if (chance.nextDouble() < 0.2) {
                producer.abortTransaction();
                return "fail";
            }
            commitWasSent = true;
            producer.commitTransaction();
            return "ok";
        } catch (Exception error) {
            // A new producer with this id ends what is open: as an abort, unless the commit was under way.
            producer.close(Duration.ZERO);
            producer = null;
            return commitWasSent ? "info" : "fail";
        }
    }

    private static void poll(KafkaConsumer<String, String> consumer, ArrayNode steps) {
        ObjectNode found = JSON.createObjectNode();
        steps.addArray().add("poll").add(found);
        for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(20))) {
            String partition = Integer.toString(record.partition());
            ArrayNode records = found.has(partition) ? (ArrayNode) found.get(partition) : found.putArray(partition);
            records.addArray().add(record.offset()).add(Long.parseLong(record.value()));
        }
    }
}
