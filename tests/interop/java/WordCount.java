import java.util.Arrays;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

/** Counts words with Kafka Streams, exactly once; runs until it is killed. Arguments: bootstrap, id, source, target, folder. */
public final class WordCount {
    public static void main(String[] args) {
        Properties config = new Properties();
        config.putAll(Map.of(
            "bootstrap.servers", args[0],
            "application.id", args[1],
            "processing.guarantee", "exactly_once_v2",
            "default.key.serde", Serdes.StringSerde.class.getName(),
            "default.value.serde", Serdes.StringSerde.class.getName(),
            "statestore.cache.max.bytes", 0,
            "commit.interval.ms", 100,
            "state.dir", args[4]));
        // A killed instance is gone for the group after this time; the shortest that brokers allow.
        config.put("consumer.session.timeout.ms", 6000);
        config.put("consumer.auto.offset.reset", "earliest");
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(args[2])
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
            .count(Materialized.as(Stores.inMemoryKeyValueStore("counts")))
            .toStream()
            .mapValues((word, count) -> word + "=" + count)
            .to(args[3], Produced.with(Serdes.String(), Serdes.String()));
        KafkaStreams streams = new KafkaStreams(builder.build(), config);
        streams.setStateListener((now, before) -> System.out.println(now));
        streams.start();
    }
}
