package main

import (
	"fmt"
	"sort"

	"github.com/IBM/sarama"
)

var saramaKinds = map[string]sarama.ConfigResourceType{"topic": sarama.TopicResource, "broker": sarama.BrokerResource}

// administration is what sarama's ClusterAdmin can do beside topics and groups.
func (d *saramaDriver) administration(op string, a *Args, admin sarama.ClusterAdmin) (any, error) {
	switch op {
	case "configs_describe":
		return d.configs(a, admin)
	case "configs_alter":
		entries := map[string]sarama.IncrementalAlterConfigsEntry{}
		for name, value := range a.Set {
			text := value.(string)
			entries[name] = sarama.IncrementalAlterConfigsEntry{Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &text}
		}
		for _, name := range a.Delete {
			entries[name] = sarama.IncrementalAlterConfigsEntry{Operation: sarama.IncrementalAlterConfigsOperationDelete}
		}
		for name, value := range a.Append {
			entries[name] = sarama.IncrementalAlterConfigsEntry{Operation: sarama.IncrementalAlterConfigsOperationAppend, Value: &value}
		}
		for name, value := range a.Subtract {
			entries[name] = sarama.IncrementalAlterConfigsEntry{Operation: sarama.IncrementalAlterConfigsOperationSubtract, Value: &value}
		}
		return nil, admin.IncrementalAlterConfig(saramaKinds[a.Kind], a.Name, entries, false)
	case "configs_replace":
		entries := map[string]*string{}
		for name, value := range a.Configs {
			entries[name] = &value
		}
		return nil, admin.AlterConfig(saramaKinds[a.Kind], a.Name, entries, false)
	case "partitions_create":
		return nil, admin.CreatePartitions(a.Topic, int32(*a.Count), nil, false)
	case "records_delete":
		offset := a.offsetOr(nil)
		return nil, admin.DeleteRecords(a.Topic, map[int32]int64{a.Partition: offset})
	case "log_dirs":
		return d.logDirs(a, admin)
	case "elect_leaders":
		found, err := admin.ElectLeaders(sarama.PreferredElection, map[string][]int32{a.Topic: {a.Partition}})
		if err != nil {
			return nil, err
		}
		if outcome := found[a.Topic][a.Partition]; outcome != nil && outcome.ErrorCode != sarama.ErrNoError {
			return nil, outcome.ErrorCode
		}
		return nil, nil
	case "reassign":
		return nil, admin.AlterPartitionReassignments(a.Topic, [][]int32{a.Replicas})
	case "reassignments":
		found, err := admin.ListPartitionReassignments(a.Topic, []int32{a.Partition})
		listed := [][]any{}
		for topic, partitions := range found {
			for partition := range partitions {
				listed = append(listed, []any{topic, partition})
			}
		}
		return listed, err
	case "group_offsets_alter":
		offsets := map[string]map[int32]sarama.OffsetAndMetadata{a.Topic: {a.Partition: {Offset: a.offsetOr(nil), LeaderEpoch: -1}}}
		done, err := admin.AlterConsumerGroupOffsets(a.Group, offsets, nil)
		if err != nil {
			return nil, err
		}
		if outcome := done.Errors[a.Topic][a.Partition]; outcome != sarama.ErrNoError {
			return nil, outcome
		}
		return nil, nil
	case "group_offsets":
		found, err := admin.ListConsumerGroupOffsets(a.Group, nil)
		if err != nil {
			return nil, err
		}
		listed := [][]any{}
		for topic, partitions := range found.Blocks {
			for partition, block := range partitions {
				listed = append(listed, []any{topic, partition, block.Offset})
			}
		}
		sortAssignment(listed)
		return listed, nil
	case "group_offsets_delete":
		return nil, admin.DeleteConsumerGroupOffset(a.Group, a.Topic, a.Partition)
	}
	return d.security(op, a, admin)
}

func (d *saramaDriver) configs(a *Args, admin sarama.ClusterAdmin) (any, error) {
	found, err := admin.DescribeConfig(sarama.ConfigResource{Type: saramaKinds[a.Kind], Name: a.Name})
	if err != nil {
		return nil, err
	}
	entries := map[string]any{}
	for _, entry := range found {
		entries[entry.Name] = map[string]any{"value": entry.Value, "source": int(entry.Source), "sensitive": entry.Sensitive}
	}
	return entries, nil
}

func (d *saramaDriver) logDirs(a *Args, admin sarama.ClusterAdmin) (any, error) {
	brokers, _, err := admin.DescribeCluster()
	if err != nil {
		return nil, err
	}
	ids := []int32{}
	for _, broker := range brokers {
		ids = append(ids, broker.ID())
	}
	found, err := admin.DescribeLogDirs(ids)
	listed := []map[string]any{}
	for _, folders := range found {
		for _, folder := range folders {
			sizes := map[string]int64{}
			for _, topic := range folder.Topics {
				for _, place := range topic.Partitions {
					if topic.Topic == a.Topic {
						sizes[fmt.Sprint(place.PartitionID)] = place.Size
					}
				}
			}
			listed = append(listed, map[string]any{"path": folder.Path, "partitions": sizes})
		}
	}
	return listed, err
}

// security is about users: ACLs, quotas, SCRAM credentials.
func (d *saramaDriver) security(op string, a *Args, admin sarama.ClusterAdmin) (any, error) {
	filter := sarama.AclFilter{
		ResourceType: sarama.AclResourceTopic, ResourcePatternTypeFilter: sarama.AclPatternAny,
		Operation: sarama.AclOperationAny, PermissionType: sarama.AclPermissionAny,
	}
	mechanism := map[string]sarama.ScramMechanismType{
		"SCRAM-SHA-256": sarama.SCRAM_MECHANISM_SHA_256, "SCRAM-SHA-512": sarama.SCRAM_MECHANISM_SHA_512,
	}[a.Mechanism]
	entity := []sarama.QuotaEntityComponent{{EntityType: sarama.QuotaEntityUser, MatchType: sarama.QuotaMatchExact, Name: a.User}}
	switch op {
	case "acls_create":
		resource := sarama.Resource{ResourceType: sarama.AclResourceTopic, ResourceName: a.Topic, ResourcePatternType: sarama.AclPatternLiteral}
		acl := sarama.Acl{Principal: "User:" + a.User, Host: "*", Operation: sarama.AclOperationRead, PermissionType: sarama.AclPermissionAllow}
		return nil, admin.CreateACL(resource, acl)
	case "acls_describe":
		found, err := admin.ListAcls(filter)
		return len(found), err
	case "acls_delete":
		found, err := admin.DeleteACL(filter, false)
		return len(found), err
	case "quotas_alter":
		for key, value := range a.Set {
			if err := admin.AlterClientQuotas(entity, sarama.ClientQuotasOp{Key: key, Value: value.(float64)}, false); err != nil {
				return nil, err
			}
		}
		for _, key := range a.Delete {
			if err := admin.AlterClientQuotas(entity, sarama.ClientQuotasOp{Key: key, Remove: true}, false); err != nil {
				return nil, err
			}
		}
		return nil, nil
	case "quotas_describe":
		asked := []sarama.QuotaFilterComponent{{EntityType: sarama.QuotaEntityUser, MatchType: sarama.QuotaMatchExact, Match: a.User}}
		found, err := admin.DescribeClientQuotas(asked, true)
		values := map[string]float64{}
		for _, entry := range found {
			for key, value := range entry.Values {
				values[key] = value
			}
		}
		return values, err
	case "scram_alter":
		var done []*sarama.AlterUserScramCredentialsResult
		var err error
		if a.Password == nil {
			done, err = admin.DeleteUserScramCredentials([]sarama.AlterUserScramCredentialsDelete{{Name: a.User, Mechanism: mechanism}})
		} else {
			done, err = admin.UpsertUserScramCredentials([]sarama.AlterUserScramCredentialsUpsert{{
				Name: a.User, Mechanism: mechanism, Iterations: a.Iterations, Salt: []byte("pepper"), Password: []byte(*a.Password),
			}})
		}
		for _, outcome := range done {
			if outcome.ErrorCode != sarama.ErrNoError {
				return nil, outcome.ErrorCode
			}
		}
		return nil, err
	case "scram_describe":
		found, err := admin.DescribeUserScramCredentials([]string{a.User})
		listed := [][]any{}
		for _, user := range found {
			if user.ErrorCode != sarama.ErrNoError {
				return nil, user.ErrorCode
			}
			for _, info := range user.CredentialInfos {
				listed = append(listed, []any{info.Mechanism.String(), info.Iterations})
			}
		}
		sort.Slice(listed, func(i, j int) bool { return listed[i][0].(string) < listed[j][0].(string) })
		return listed, err
	}
	return nil, fmt.Errorf("sarama has no %s", op)
}
