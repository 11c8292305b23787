package io.github.ottla;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/**
 * A Kafka broker in a child process, in memory, on a free port. It ends with {@link #close()}, or with this process.
 *
 * <p>It needs Python with ottla (pip install ottla). The command is {@code ottla}, or what {@code $OTTLA_COMMAND} says.
 */
public final class OttlaBroker implements AutoCloseable {
    /** A record as it is stored; key and value are null where there is none. */
    public record Stored(int partition, long offset, long timestamp, byte[] key, byte[] value) {}

    private final Process process;
    private final Path errors;
    private final Map<String, Object> ready;
    private final HttpClient http = HttpClient.newHttpClient();

    private OttlaBroker(Process process, Path errors, Map<String, Object> ready) {
        this.process = process;
        this.errors = errors;
        this.ready = ready;
    }

    /** Start one and wait until it is ready; {@code options} are those of {@code ottla serve}. */
    public static OttlaBroker start(String... options) {
        String named = System.getenv().getOrDefault("OTTLA_COMMAND", System.getProperty("ottla.command", "ottla"));
        List<String> command = new ArrayList<>(Arrays.asList(named.trim().split("\\s+")));
        command.addAll(List.of("serve", "--ephemeral", "--port", "0", "--control", "0", "--json", "--no-console"));
        command.addAll(List.of("--preset", "test", "--exit-with-parent", "--log-level", "WARNING"));
        command.addAll(List.of(options));
        try {
            Path errors = Files.createTempFile("ottla", ".log");
            errors.toFile().deleteOnExit();
            Process process;
            try {
                process = new ProcessBuilder(command).redirectError(errors.toFile()).start();
            } catch (IOException error) {
                throw new IllegalStateException("cannot run " + command.get(0) + " (pip install ottla, or set OTTLA_COMMAND)", error);
            }
            String line = new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8)).readLine();
            if (line == null) {
                process.destroyForcibly();
                throw new IllegalStateException("the broker did not start: " + Files.readString(errors).trim());
            }
            return new OttlaBroker(process, errors, Json.object(Json.parse(line)));
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    /** The address for {@code bootstrap.servers}. */
    public String bootstrap() {
        return (String) ready.get("bootstrap");
    }

    /** The URL of the HTTP endpoint that the methods below use. */
    public String controlUrl() {
        return (String) ready.get("control");
    }

    /** The properties file with which clients get in, where {@code --tls} or {@code --user} is given; else null. */
    public Path clientProperties() {
        Map<String, Object> security = Json.object(ready.get("security"));
        return security == null ? null : Path.of((String) security.get("client_config"));
    }

    public void createTopic(String name, int partitions, Map<String, String> config) {
        ask("POST", "/topics/" + coded(name), fields("partitions", partitions, "config", config));
    }

    /** Write records without a client. */
    public void append(String topic, String... values) {
        ask("POST", "/topics/" + coded(topic) + "/records", fields("records", List.of(values)));
    }

    /** What a read_committed consumer sees. */
    public List<Stored> records(String topic) {
        return stored(ask("GET", "/topics/" + coded(topic) + "/records", null));
    }

    /** Block until a topic has these many records. */
    public List<Stored> waitForRecords(String topic, int count, Duration timeout) {
        return stored(ask("POST", "/topics/" + coded(topic) + "/wait", fields("count", count, "timeout", seconds(timeout))));
    }

    /** How many records of a topic a group has still to read. */
    public long lag(String group, String topic) {
        return (Long) Json.object(ask("GET", "/groups/" + coded(group) + "/lag?of=" + coded(topic), null)).get("lag");
    }

    /** Block until a group has these many members and all have their partitions. */
    public void waitUntilStable(String group, int members, Duration timeout) {
        ask("POST", "/groups/" + coded(group) + "/wait_until_stable", fields("members", members, "timeout", seconds(timeout)));
    }

    /** Block until a group has read and committed all of a topic. */
    public void waitUntilCaughtUp(String group, String topic, Duration timeout) {
        ask("POST", "/groups/" + coded(group) + "/wait_until_caught_up", fields("of", topic, "timeout", seconds(timeout)));
    }

    /** Block until a client sent such a request, by Kafka's name of the API: {@code Fetch}. */
    public void waitForRequest(String api, Duration timeout) {
        ask("POST", "/requests/wait", fields("api", api, "timeout", seconds(timeout)));
    }

    /** Make the broker misbehave; returns the number of the fault. docs/faults.md lists kinds and options. */
    public long addFault(String kind, Map<String, ?> options) {
        Map<String, Object> body = fields("kind", kind);
        body.putAll(options);
        return (Long) Json.object(ask("POST", "/faults", body)).get("id");
    }

    /** How often a fault has struck. */
    public long fired(long fault) {
        return (Long) Json.object(ask("GET", "/faults/" + fault, null)).get("fired");
    }

    public void clearFaults() {
        ask("DELETE", "/faults", null);
    }

    /** Move the broker's clock; what falls due happens before this returns. */
    public void advance(Duration duration) {
        ask("POST", "/clock/advance", fields("ms", duration.toMillis()));
    }

    /** Remove all topics, groups and faults. */
    public void reset() {
        ask("POST", "/reset", null);
    }

    /** Keep the state now, for {@link #restore}. */
    public long snapshot() {
        return (Long) Json.object(ask("POST", "/snapshots", null)).get("snapshot");
    }

    /** Go back to a snapshot; clients connect again. */
    public void restore(long snapshot) {
        ask("POST", "/snapshots/" + snapshot + "/restore", null);
    }

    /** Any request of the control endpoint; the answer is made of maps, lists, strings, longs and booleans. */
    public Object ask(String method, String path, Map<String, ?> body) {
        HttpRequest.BodyPublisher content = body == null
                ? HttpRequest.BodyPublishers.noBody()
                : HttpRequest.BodyPublishers.ofString(Json.write(body));
        HttpRequest request = HttpRequest.newBuilder(URI.create(controlUrl() + path)).method(method, content).build();
        try {
            HttpResponse<String> response = http.send(request, HttpResponse.BodyHandlers.ofString());
            Object answer = Json.parse(response.body());
            if (response.statusCode() >= 400) {
                throw new IllegalStateException(method + " " + path + ": " + Json.object(answer).get("error"));
            }
            return answer;
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new IllegalStateException("interrupted", error);
        }
    }

    @Override
    public void close() {
        process.destroy();
        try {
            if (!process.waitFor(10, TimeUnit.SECONDS)) process.destroyForcibly();
        } catch (InterruptedException error) {
            process.destroyForcibly();
            Thread.currentThread().interrupt();
        }
        errors.toFile().delete();
    }

    private static List<Stored> stored(Object answer) {
        List<Stored> found = new ArrayList<>();
        for (Object each : (List<?>) answer) {
            Map<String, Object> record = Json.object(each);
            found.add(new Stored(
                    ((Long) record.get("partition")).intValue(),
                    (Long) record.get("offset"),
                    (Long) record.get("timestamp"),
                    bytes(record.get("key")),
                    bytes(record.get("value"))));
        }
        return found;
    }

    private static byte[] bytes(Object part) {
        if (part == null) return null;
        if (part instanceof String text) return text.getBytes(StandardCharsets.UTF_8);
        return Base64.getDecoder().decode((String) Json.object(part).get("base64"));
    }

    private static double seconds(Duration timeout) {
        return timeout.toMillis() / 1000.0;
    }

    private static String coded(String name) {
        return URLEncoder.encode(name, StandardCharsets.UTF_8).replace("+", "%20");
    }

    private static Map<String, Object> fields(Object... pairs) {
        Map<String, Object> found = new LinkedHashMap<>();
        for (int index = 0; index < pairs.length; index += 2) found.put((String) pairs[index], pairs[index + 1]);
        return found;
    }
}
