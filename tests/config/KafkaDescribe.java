// Changes configs of a running broker and prints what it tells about them, for test_describe.py.
//   KafkaDescribe BOOTSTRAP     reads "set TAB type TAB name TAB key TAB value" and "describe TAB type TAB name" lines
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.config.ConfigResource;

public class KafkaDescribe {
    public static void main(String[] arguments) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", arguments[0]))) {
            var lines = new BufferedReader(new InputStreamReader(System.in));
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                String[] parts = line.split("\t", -1);
                var resource = new ConfigResource(ConfigResource.Type.valueOf(parts[1]), parts[2]);
                if (parts[0].equals("set")) {
                    set(admin, resource, parts[3], parts[4]);
                } else if (parts[0].equals("topic")) {
                    admin.createTopics(List.of(new NewTopic(parts[2], 1, (short) 1))).all().get();
                } else {
                    describe(admin, resource);
                }
            }
        }
        Runtime.getRuntime().halt(0);
    }

    static void set(Admin admin, ConfigResource resource, String key, String value) throws Exception {
        var change = new AlterConfigOp(new ConfigEntry(key, value), AlterConfigOp.OpType.SET);
        try {
            admin.incrementalAlterConfigs(Map.of(resource, List.of(change))).all().get();
            System.out.println("set\tok");
        } catch (ExecutionException error) {
            System.out.println("set\t" + error.getCause().getMessage());
        }
        // Dynamic configs are applied a moment after the answer.
        Thread.sleep(200);
    }

    static void describe(Admin admin, ConfigResource resource) throws Exception {
        var options = new DescribeConfigsOptions().includeSynonyms(true);
        for (ConfigEntry entry : admin.describeConfigs(List.of(resource), options).all().get().get(resource).entries()) {
            var text = new StringBuilder();
            for (var synonym : entry.synonyms()) {
                text.append(synonym.name()).append('=').append(synonym.value()).append('@').append(synonym.source());
                text.append(';');
            }
            System.out.println(String.join("\t", "entry", resource.type().toString(), resource.name(), entry.name(),
                String.valueOf(entry.value()), entry.source().toString(), String.valueOf(entry.isReadOnly()),
                String.valueOf(entry.isSensitive()), entry.type().toString(), text));
        }
    }
}
