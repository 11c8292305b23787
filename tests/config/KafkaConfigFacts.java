// Tells what Apache Kafka's own tables say, for test_against_kafka.py.
//   facts            one line for each key, update mode and synonym
//   check            reads "kind TAB key TAB value" lines, and says what Kafka makes of each value
//   properties       reads texts in base64, one a line, and says what java.util.Properties finds in each
//   load             reads "key=value TAB key=value ..." lines, and says whether a broker takes them
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.StringReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.server.config.QuotaConfig;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.server.metrics.ClientMetricsConfigs;
import org.apache.kafka.storage.internals.log.LogConfig;

public class KafkaConfigFacts {
    static final Map<String, ConfigDef> TABLES = new LinkedHashMap<>();

    static String text(Object value, ConfigDef.Type type) {
        if (value == null) return "null";
        return value instanceof Password p ? p.value() : ConfigDef.convertToString(value, type);
    }

    static void facts() {
        TABLES.forEach((kind, table) -> {
            for (ConfigDef.ConfigKey key : new TreeMap<>(table.configKeys()).values()) {
                String value = key.hasDefault() ? text(key.defaultValue, key.type) : "required";
                System.out.println(String.join("\t", "key", kind, key.name, key.type.toString(), value,
                    key.importance.toString(), String.valueOf(key.internalConfig)));
            }
        });
        DynamicBrokerConfig.dynamicConfigUpdateModes().forEach(
            (name, mode) -> System.out.println(String.join("\t", "mode", name, mode)));
        ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS.forEach((name, synonyms) -> {
            for (var synonym : synonyms) System.out.println(String.join("\t", "synonym", "topic", name, synonym.name()));
        });
        GroupConfig.ALL_GROUP_CONFIG_SYNONYMS.forEach((name, synonym) ->
            synonym.ifPresent(broker -> System.out.println(String.join("\t", "synonym", "group", name, broker))));
        for (String name : AbstractKafkaConfig.CONFIG_DEF.names()) {
            List<String> related = DynamicBrokerConfig.brokerConfigSynonyms(name, false);
            System.out.println("related\t" + name + "\t" + String.join(",", related));
        }
    }

    static void check(String line) {
        String[] parts = line.split("\t", -1);
        ConfigDef.ConfigKey key = TABLES.get(parts[0]).configKeys().get(parts[1]);
        ConfigDef table = new ConfigDef().define(key);
        try {
            System.out.println("ok\t" + text(table.parse(Map.of(key.name, parts[2])).get(key.name), key.type));
        } catch (Exception error) {
            System.out.println("error\t" + error.getMessage());
        }
    }

    static void load(String line) {
        Properties properties = new Properties();
        for (String setting : line.split("\t")) {
            int equals = setting.indexOf('=');
            properties.put(setting.substring(0, equals), setting.substring(equals + 1));
        }
        try {
            var config = kafka.server.KafkaConfig.fromProps(properties);
            System.out.println("ok\t" + config.nodeId() + "\t" + config.logRetentionTimeMillis() + "\t"
                + String.join(",", scala.jdk.javaapi.CollectionConverters.asJava(
                    config.effectiveAdvertisedBrokerListeners().map(e -> e.listener() + "://" + e.port()).toSeq())));
        } catch (Throwable error) {
            System.out.println("error\t" + error.getMessage());
        }
    }

    static void properties(String line) throws Exception {
        Properties found = new Properties();
        try {
            found.load(new StringReader(new String(Base64.getDecoder().decode(line), StandardCharsets.UTF_8)));
        } catch (IllegalArgumentException malformed) {
            System.out.println("error");
            return;
        }
        var all = new StringBuilder();
        for (String name : new TreeSet<>(found.stringPropertyNames())) {
            all.append(name).append('\0').append(found.getProperty(name)).append('\0');
        }
        System.out.println("ok\t" + Base64.getEncoder().encodeToString(all.toString().getBytes(StandardCharsets.UTF_8)));
    }

    public static void main(String[] arguments) throws Exception {
        TABLES.put("broker", AbstractKafkaConfig.CONFIG_DEF);
        TABLES.put("dynamic", QuotaConfig.brokerQuotaConfigs());
        TABLES.put("topic", LogConfig.configDefCopy());
        TABLES.put("group", GroupConfig.CONFIG_DEF);
        TABLES.put("client-metrics", ClientMetricsConfigs.configDef());
        if (arguments[0].equals("facts")) {
            facts();
        } else {
            var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                switch (arguments[0]) {
                    case "check" -> check(line);
                    case "properties" -> properties(line);
                    default -> load(line);
                }
            }
        }
        Runtime.getRuntime().halt(0);
    }
}
