// What kafkajs' admin client can do beside topics and groups.
'use strict';

const {
  AclOperationTypes, AclPermissionTypes, AclResourceTypes, ConfigResourceTypes, ResourcePatternTypes,
} = require('kafkajs');

const kinds = { topic: ConfigResourceTypes.TOPIC, broker: ConfigResourceTypes.BROKER };
const anyTopic = {
  resourceType: AclResourceTypes.TOPIC, resourcePatternType: ResourcePatternTypes.ANY,
  operation: AclOperationTypes.ANY, permissionType: AclPermissionTypes.ANY,
};

module.exports = (withAdmin) => ({
  async configs_describe({ kind, name }) {
    const found = await withAdmin((admin) => admin.describeConfigs({
      includeSynonyms: false, resources: [{ type: kinds[kind], name }],
    }));
    return Object.fromEntries(found.resources[0].configEntries.map((entry) => [
      entry.configName, { value: entry.configValue, source: entry.configSource, sensitive: entry.isSensitive },
    ]));
  },

  async configs_replace({ kind, name, configs }) {
    const configEntries = Object.entries(configs).map(([key, value]) => ({ name: key, value }));
    await withAdmin((admin) => admin.alterConfigs({ validateOnly: false, resources: [{ type: kinds[kind], name, configEntries }] }));
    return null;
  },

  async partitions_create({ topic, count }) {
    await withAdmin((admin) => admin.createPartitions({ topicPartitions: [{ topic, count }] }));
    return null;
  },

  async records_delete({ topic, partition, offset }) {
    await withAdmin(async (admin) => {
      await admin.fetchTopicOffsets(topic); // else it does not know the topic's leaders
      await admin.deleteTopicRecords({ topic, partitions: [{ partition, offset: String(offset) }] });
    });
    return null;
  },

  async acls_create({ user, topic }) {
    const acl = {
      resourceType: AclResourceTypes.TOPIC, resourceName: topic, resourcePatternType: ResourcePatternTypes.LITERAL,
      principal: `User:${user}`, host: '*', operation: AclOperationTypes.READ, permissionType: AclPermissionTypes.ALLOW,
    };
    await withAdmin((admin) => admin.createAcls({ acl: [acl] }));
    return null;
  },

  async acls_describe() {
    return (await withAdmin((admin) => admin.describeAcls(anyTopic))).resources.length;
  },

  async acls_delete() {
    return (await withAdmin((admin) => admin.deleteAcls({ filters: [anyTopic] }))).filterResponses.length;
  },

  async reassign({ topic, partition, replicas }) {
    await withAdmin((admin) => admin.alterPartitionReassignments({
      topics: [{ topic, partitionAssignment: [{ partition, replicas }] }],
    }));
    return null;
  },

  async reassignments({ topic, partition }) {
    const found = await withAdmin((admin) => admin.listPartitionReassignments({ topics: [{ topic, partitions: [partition] }] }));
    return found.topics.flatMap((each) => each.partitions.map((place) => [each.name || each.topic, place.partition]));
  },

  async group_offsets_alter({ group, topic, partition, offset }) {
    await withAdmin((admin) => admin.setOffsets({ groupId: group, topic, partitions: [{ partition, offset: String(offset) }] }));
    return null;
  },

  async group_offsets({ group }) {
    const found = await withAdmin((admin) => admin.fetchOffsets({ groupId: group }));
    return found.flatMap(({ topic, partitions }) => partitions.map((p) => [topic, p.partition, Number(p.offset)]));
  },
});
