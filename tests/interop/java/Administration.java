import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.UserScramCredentialAlteration;
import org.apache.kafka.clients.admin.UserScramCredentialDeletion;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.quota.ClientQuotaFilterComponent;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;

/** What the Java AdminClient can do beside topics and groups. */
final class Administration {
    private static final Map<ConfigEntry.ConfigSource, Integer> SOURCES = Map.of(
        ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG, 1, ConfigEntry.ConfigSource.DYNAMIC_BROKER_CONFIG, 2,
        ConfigEntry.ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, 3, ConfigEntry.ConfigSource.STATIC_BROKER_CONFIG, 4,
        ConfigEntry.ConfigSource.DEFAULT_CONFIG, 5);

    private final Admin admin;

    Administration(Admin admin) {
        this.admin = admin;
    }

    Object run(String op, JsonNode args) throws Exception {
        String topic = args.path("topic").asText();
        TopicPartition place = new TopicPartition(topic, args.path("partition").asInt());
        switch (op) {
            case "configs_describe": return configs(resource(args));
            case "configs_alter": return alterConfigs(resource(args), args);
            case "partitions_create":
                admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(args.get("count").asInt()))).all().get();
                return null;
            case "records_delete":
                return admin.deleteRecords(Map.of(place, RecordsToDelete.beforeOffset(args.get("offset").asLong())))
                    .lowWatermarks().get(place).get().lowWatermark();
            case "log_dirs": return logDirs(topic);
            case "elect_leaders":
                Optional<Throwable> refused =
                    admin.electLeaders(ElectionType.PREFERRED, Set.of(place)).partitions().get().get(place);
                if (refused.isPresent()) {
                    throw (Exception) refused.get();
                }
                return null;
            case "reassign":
                List<Integer> replicas = new ArrayList<>();
                args.path("replicas").forEach(each -> replicas.add(each.asInt()));
                admin.alterPartitionReassignments(Map.of(place, args.hasNonNull("replicas")
                    ? Optional.of(new NewPartitionReassignment(replicas)) : Optional.empty())).all().get();
                return null;
            case "reassignments":
                return pairs(admin.listPartitionReassignments(Set.of(place)).reassignments().get().keySet());
            case "features":
                return new TreeMap<>(Map.of("finalized", new TreeSet<>(
                    admin.describeFeatures().featureMetadata().get().finalizedFeatures().keySet())));
            case "quorum":
                var quorum = admin.describeMetadataQuorum().quorumInfo().get();
                return Map.of("leader", quorum.leaderId(), "voters", quorum.voters().stream().map(v -> v.replicaId()).toList());
            case "config_resources":
                return new TreeSet<>(admin.listConfigResources().all().get().stream()
                    .map(each -> each.type() + " " + each.name()).toList());
            default: break;
        }
        return op.startsWith("group_offsets") ? groupOffsets(op, args, place) : security(op, args);
    }

    private static ConfigResource resource(JsonNode args) {
        return new ConfigResource(ConfigResource.Type.valueOf(args.get("kind").asText().toUpperCase()), args.get("name").asText());
    }

    private Object configs(ConfigResource resource) throws Exception {
        Config found = admin.describeConfigs(List.of(resource)).all().get().get(resource);
        Map<String, Object> entries = new HashMap<>();
        for (ConfigEntry entry : found.entries()) {
            Map<String, Object> one = new HashMap<>();
            one.put("value", entry.value());
            one.put("source", SOURCES.getOrDefault(entry.source(), 0));
            one.put("sensitive", entry.isSensitive());
            entries.put(entry.name(), one);
        }
        return entries;
    }

    private Object alterConfigs(ConfigResource resource, JsonNode args) throws Exception {
        Collection<AlterConfigOp> changes = new ArrayList<>();
        args.path("delete").forEach(name -> changes.add(
            new AlterConfigOp(new ConfigEntry(name.asText(), null), AlterConfigOp.OpType.DELETE)));
        for (AlterConfigOp.OpType type : List.of(AlterConfigOp.OpType.SET, AlterConfigOp.OpType.APPEND, AlterConfigOp.OpType.SUBTRACT)) {
            args.path(type.name().toLowerCase()).fields().forEachRemaining(field -> changes.add(
                new AlterConfigOp(new ConfigEntry(field.getKey(), field.getValue().asText()), type)));
        }
        admin.incrementalAlterConfigs(Map.of(resource, changes)).all().get();
        return null;
    }

    private Object logDirs(String topic) throws Exception {
        List<Integer> brokers = admin.describeCluster().nodes().get().stream().map(node -> node.id()).toList();
        List<Object> listed = new ArrayList<>();
        for (var folders : admin.describeLogDirs(brokers).allDescriptions().get().values()) {
            for (var folder : folders.entrySet()) {
                Map<String, Long> sizes = new TreeMap<>();
                folder.getValue().replicaInfos().forEach((place, info) -> {
                    if (place.topic().equals(topic)) {
                        sizes.put(String.valueOf(place.partition()), info.size());
                    }
                });
                listed.add(Map.of("path", folder.getKey(), "partitions", sizes));
            }
        }
        return listed;
    }

    private static List<List<Object>> pairs(Collection<TopicPartition> places) {
        List<List<Object>> listed = new ArrayList<>();
        places.forEach(place -> listed.add(List.of(place.topic(), place.partition())));
        return listed;
    }

    private Object groupOffsets(String op, JsonNode args, TopicPartition place) throws Exception {
        String group = args.get("group").asText();
        switch (op) {
            case "group_offsets_alter":
                admin.alterConsumerGroupOffsets(group, Map.of(place, new OffsetAndMetadata(args.get("offset").asLong()))).all().get();
                return null;
            case "group_offsets_delete":
                admin.deleteConsumerGroupOffsets(group, Set.of(place)).all().get();
                return null;
            default:
                List<Object> listed = new ArrayList<>();
                admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get()
                    .forEach((where, offset) -> listed.add(List.of(where.topic(), where.partition(), offset.offset())));
                return listed;
        }
    }

    /** About users: ACLs, quotas, SCRAM credentials. */
    private Object security(String op, JsonNode args) throws Exception {
        String user = args.path("user").asText();
        ClientQuotaEntity entity = new ClientQuotaEntity(Map.of(ClientQuotaEntity.USER, user));
        switch (op) {
            case "acls_create":
                admin.createAcls(List.of(new AclBinding(
                    new ResourcePattern(ResourceType.TOPIC, args.get("topic").asText(), PatternType.LITERAL),
                    new AccessControlEntry("User:" + user, "*", AclOperation.READ, AclPermissionType.ALLOW)))).all().get();
                return null;
            case "acls_describe": return admin.describeAcls(AclBindingFilter.ANY).values().get().size();
            case "acls_delete": return admin.deleteAcls(List.of(AclBindingFilter.ANY)).all().get().size();
            case "quotas_alter":
                List<ClientQuotaAlteration.Op> changes = new ArrayList<>();
                args.path("set").fields().forEachRemaining(field ->
                    changes.add(new ClientQuotaAlteration.Op(field.getKey(), field.getValue().asDouble())));
                args.path("delete").forEach(key -> changes.add(new ClientQuotaAlteration.Op(key.asText(), null)));
                admin.alterClientQuotas(List.of(new ClientQuotaAlteration(entity, changes))).all().get();
                return null;
            case "quotas_describe":
                return admin.describeClientQuotas(ClientQuotaFilter.containsOnly(
                    List.of(ClientQuotaFilterComponent.ofEntity(ClientQuotaEntity.USER, user)))).entities().get()
                    .getOrDefault(entity, Map.of());
            case "scram_alter":
                ScramMechanism mechanism = ScramMechanism.fromMechanismName(args.get("mechanism").asText());
                UserScramCredentialAlteration change = args.hasNonNull("password")
                    ? new UserScramCredentialUpsertion(user, new ScramCredentialInfo(mechanism, args.get("iterations").asInt()),
                        args.get("password").asText())
                    : new UserScramCredentialDeletion(user, mechanism);
                admin.alterUserScramCredentials(List.of(change)).all().get();
                return null;
            case "scram_describe":
                List<Object> listed = new ArrayList<>();
                for (ScramCredentialInfo info : admin.describeUserScramCredentials(List.of(user)).description(user).get().credentialInfos()) {
                    listed.add(List.of(info.mechanism().mechanismName(), info.iterations()));
                }
                return listed;
            default: throw new IllegalArgumentException(op);
        }
    }
}
