import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Exit;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.tools.streams.StreamsGroupCommand;

/**
 * Kafka Streams applications whose tasks the broker assigns (group.protocol=streams). Argument: bootstrap. Lines in:
 * "start NAME upper|count ID SOURCE TARGET FOLDER", "close NAME", "tool WORDS…" (kafka-streams-groups). Lines out:
 * "NAME STATE", and for a tool what it says, between "begin" and "end".
 */
public final class StreamsApp {
    private static final PrintStream OUT = System.out;
    private static final Map<String, KafkaStreams> RUNNING = new HashMap<>();

    private static final class Ended extends RuntimeException { }

    public static void main(String[] args) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "start" -> start(args[0], words);
                case "close" -> {
                    RUNNING.remove(words[1]).close(
                        CloseOptions.groupMembershipOperation(CloseOptions.GroupMembershipOperation.LEAVE_GROUP)
                            .withTimeout(Duration.ofSeconds(60)));
                    say(words[1] + " closed");
                }
                default -> tool(args[0], Arrays.copyOfRange(words, 1, words.length));
            }
        }
        Runtime.getRuntime().halt(0);
    }

    private static synchronized void say(String text) {
        OUT.println(text);
        OUT.flush();
    }

    private static void start(String bootstrap, String[] words) {
        Properties config = new Properties();
        config.putAll(Map.of(
            "bootstrap.servers", bootstrap,
            "application.id", words[3],
            "group.protocol", "streams",
            "default.key.serde", Serdes.StringSerde.class.getName(),
            "default.value.serde", Serdes.StringSerde.class.getName(),
            "statestore.cache.max.bytes", 0,
            "commit.interval.ms", 100,
            "application.server", "localhost:" + (9000 + RUNNING.size()),
            "state.dir", words[6]));
        config.put("consumer.auto.offset.reset", "earliest");
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> lines = builder.stream(words[4]);
        if (words[2].equals("upper")) {
            lines.mapValues(text -> text.toUpperCase()).to(words[5]);
        } else {
            config.put("processing.guarantee", "exactly_once_v2");
            lines.flatMapValues(text -> Arrays.asList(text.split(" ")))
                .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
                .count(Materialized.as(Stores.inMemoryKeyValueStore("counts")))
                .toStream()
                .mapValues((word, count) -> word + "=" + count)
                .to(words[5], Produced.with(Serdes.String(), Serdes.String()));
        }
        KafkaStreams streams = new KafkaStreams(builder.build(), config);
        streams.setStateListener((now, before) -> say(words[1] + " " + now));
        RUNNING.put(words[1], streams);
        streams.start();
    }

    private static void tool(String bootstrap, String[] words) {
        String[] all = new String[words.length + 2];
        all[0] = "--bootstrap-server";
        all[1] = bootstrap;
        System.arraycopy(words, 0, all, 2, words.length);
        ByteArrayOutputStream said = new ByteArrayOutputStream();
        PrintStream out = System.out;
        PrintStream err = System.err;
        System.setOut(new PrintStream(said, true));
        System.setErr(System.out);
        Exit.setExitProcedure((code, message) -> { throw new Ended(); });
        try {
            StreamsGroupCommand.main(all);
        } catch (Ended ended) {
            // it is done
        } catch (Throwable failure) {
            failure.printStackTrace();
        } finally {
            System.setOut(out);
            System.setErr(err);
        }
        say("begin\n" + said.toString().strip() + "\nend");
    }
}
