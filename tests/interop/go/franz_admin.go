package main

import (
	"context"
	"fmt"
	"sort"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
)

// administration is what kadm can do beside topics and groups.
func (d *franzDriver) administration(ctx context.Context, op string, a *Args, admin *kadm.Client) (any, error) {
	place := kadm.TopicsSet{}
	place.Add(a.Topic, a.Partition)
	switch op {
	case "configs_describe":
		return d.configs(ctx, a, admin)
	case "configs_alter", "configs_replace":
		return nil, d.alterConfigs(ctx, op == "configs_alter", a, admin)
	case "partitions_create":
		done, err := admin.UpdatePartitions(ctx, *a.Count, a.Topic)
		if err != nil {
			return nil, err
		}
		return nil, done[a.Topic].Err
	case "records_delete":
		offsets := kadm.Offsets{}
		offsets.AddOffset(a.Topic, a.Partition, a.offsetOr(nil), -1)
		done, err := admin.DeleteRecords(ctx, offsets)
		if err != nil {
			return nil, err
		}
		outcome := done[a.Topic][a.Partition]
		return outcome.LowWatermark, outcome.Err
	case "log_dirs":
		// A topic without partitions would be none of its partitions.
		found, err := admin.DescribeAllLogDirs(ctx, nil)
		listed := []map[string]any{}
		for _, folder := range found.Sorted() {
			sizes := map[string]int64{}
			for partition, one := range folder.Topics[a.Topic] {
				sizes[fmt.Sprint(partition)] = one.Size
			}
			listed = append(listed, map[string]any{"path": folder.Dir, "partitions": sizes})
		}
		return listed, err
	case "elect_leaders":
		done, err := admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, place)
		if err != nil {
			return nil, err
		}
		return nil, done[a.Topic][a.Partition].Err
	case "reassign":
		request := kadm.AlterPartitionAssignmentsReq{}
		if a.Replicas == nil {
			request.CancelAssign(a.Topic, a.Partition)
		} else {
			request.Assign(a.Topic, a.Partition, a.Replicas)
		}
		done, err := admin.AlterPartitionAssignments(ctx, request)
		if err != nil {
			return nil, err
		}
		return nil, done[a.Topic][a.Partition].Err
	case "reassignments":
		found, err := admin.ListPartitionReassignments(ctx, place)
		listed := [][]any{}
		for _, one := range found.Sorted() {
			listed = append(listed, []any{one.Topic, one.Partition})
		}
		return listed, err
	}
	if strings.HasPrefix(op, "group_offsets") {
		return d.groupOffsets(ctx, op, a, admin, place)
	}
	return d.security(ctx, op, a, admin)
}

func (d *franzDriver) configs(ctx context.Context, a *Args, admin *kadm.Client) (any, error) {
	var found kadm.ResourceConfigs
	var err error
	if a.Kind == "topic" {
		found, err = admin.DescribeTopicConfigs(ctx, a.Name)
	} else {
		id, _ := strconv.Atoi(a.Name)
		found, err = admin.DescribeBrokerConfigs(ctx, int32(id))
	}
	if err != nil {
		return nil, err
	}
	resource, err := found.On(a.Name, nil)
	if err != nil {
		return nil, err
	}
	entries := map[string]any{}
	for _, entry := range resource.Configs {
		entries[entry.Key] = map[string]any{"value": entry.Value, "source": int(entry.Source), "sensitive": entry.Sensitive}
	}
	return entries, resource.Err
}

func (d *franzDriver) alterConfigs(ctx context.Context, incremental bool, a *Args, admin *kadm.Client) error {
	changes := []kadm.AlterConfig{}
	for name, value := range a.Set {
		text := value.(string)
		changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: &text})
	}
	for _, name := range a.Delete {
		changes = append(changes, kadm.AlterConfig{Op: kadm.DeleteConfig, Name: name})
	}
	for name, value := range a.Append {
		changes = append(changes, kadm.AlterConfig{Op: kadm.AppendConfig, Name: name, Value: &value})
	}
	for name, value := range a.Subtract {
		changes = append(changes, kadm.AlterConfig{Op: kadm.SubtractConfig, Name: name, Value: &value})
	}
	for name, value := range a.Configs {
		changes = append(changes, kadm.AlterConfig{Name: name, Value: &value})
	}
	var done kadm.AlterConfigsResponses
	var err error
	brokers := []int32{}
	if id, failed := strconv.Atoi(a.Name); failed == nil {
		brokers = append(brokers, int32(id))
	}
	switch {
	case a.Kind == "topic" && incremental:
		done, err = admin.AlterTopicConfigs(ctx, changes, a.Name)
	case a.Kind == "topic":
		done, err = admin.AlterTopicConfigsState(ctx, changes, a.Name)
	case incremental:
		done, err = admin.AlterBrokerConfigs(ctx, changes, brokers...)
	default:
		done, err = admin.AlterBrokerConfigsState(ctx, changes, brokers...)
	}
	for _, outcome := range done {
		if outcome.Err != nil {
			return fmt.Errorf("%w: %s", outcome.Err, outcome.ErrMessage)
		}
	}
	return err
}

func (d *franzDriver) groupOffsets(ctx context.Context, op string, a *Args, admin *kadm.Client, place kadm.TopicsSet) (any, error) {
	switch op {
	case "group_offsets_alter":
		offsets := kadm.Offsets{}
		offsets.AddOffset(a.Topic, a.Partition, a.offsetOr(nil), -1)
		done, err := admin.CommitOffsets(ctx, a.Group, offsets)
		if err != nil {
			return nil, err
		}
		return nil, done.Error()
	case "group_offsets":
		found, err := admin.FetchOffsets(ctx, a.Group)
		listed := [][]any{}
		found.Each(func(one kadm.OffsetResponse) { listed = append(listed, []any{one.Topic, one.Partition, one.At}) })
		sortAssignment(listed)
		return listed, err
	case "group_offsets_delete":
		done, err := admin.DeleteOffsets(ctx, a.Group, place)
		if err != nil {
			return nil, err
		}
		return nil, done[a.Topic][a.Partition]
	}
	return nil, fmt.Errorf("franz-go has no %s", op)
}

// security is about users: ACLs, quotas, SCRAM credentials.
func (d *franzDriver) security(ctx context.Context, op string, a *Args, admin *kadm.Client) (any, error) {
	filter := kadm.NewACLs().Topics().ResourcePatternType(kadm.ACLPatternAny).Operations(kadm.OpAny).
		Allow().AllowHosts().Deny().DenyHosts()
	mechanism := map[string]kadm.ScramMechanism{"SCRAM-SHA-256": kadm.ScramSha256, "SCRAM-SHA-512": kadm.ScramSha512}[a.Mechanism]
	entity := kadm.ClientQuotaEntity{{Type: "user", Name: &a.User}}
	switch op {
	case "acls_create":
		made := kadm.NewACLs().Topics(a.Topic).ResourcePatternType(kadm.ACLPatternLiteral).Operations(kadm.OpRead).Allow("User:" + a.User)
		done, err := admin.CreateACLs(ctx, made)
		for _, outcome := range done {
			if outcome.Err != nil {
				return nil, outcome.Err
			}
		}
		return nil, err
	case "acls_describe":
		found, err := admin.DescribeACLs(ctx, filter)
		for _, outcome := range found {
			if outcome.Err != nil {
				return nil, outcome.Err
			}
		}
		return len(found), err
	case "acls_delete":
		found, err := admin.DeleteACLs(ctx, filter)
		for _, outcome := range found {
			if outcome.Err != nil {
				return nil, outcome.Err
			}
		}
		return len(found), err
	case "quotas_alter":
		changes := []kadm.AlterClientQuotaOp{}
		for key, value := range a.Set {
			changes = append(changes, kadm.AlterClientQuotaOp{Key: key, Value: value.(float64)})
		}
		for _, key := range a.Delete {
			changes = append(changes, kadm.AlterClientQuotaOp{Key: key, Remove: true})
		}
		done, err := admin.AlterClientQuotas(ctx, []kadm.AlterClientQuotaEntry{{Entity: entity, Ops: changes}})
		for _, outcome := range done {
			if outcome.Err != nil {
				return nil, outcome.Err
			}
		}
		return nil, err
	case "quotas_describe":
		asked := []kadm.DescribeClientQuotaComponent{{Type: "user", MatchName: &a.User}}
		found, err := admin.DescribeClientQuotas(ctx, true, asked)
		values := map[string]float64{}
		for _, entry := range found {
			for _, value := range entry.Values {
				values[value.Key] = value.Value
			}
		}
		return values, err
	case "scram_alter", "scram_describe":
		return d.scram(ctx, op, a, admin, mechanism)
	}
	return nil, fmt.Errorf("franz-go has no %s", op)
}

func (d *franzDriver) scram(ctx context.Context, op string, a *Args, admin *kadm.Client, mechanism kadm.ScramMechanism) (any, error) {
	if op == "scram_describe" {
		found, err := admin.DescribeUserSCRAMs(ctx, a.User)
		if err != nil {
			return nil, err
		}
		listed := [][]any{}
		for _, info := range found[a.User].CredInfos {
			listed = append(listed, []any{info.Mechanism.String(), info.Iterations})
		}
		sort.Slice(listed, func(i, j int) bool { return listed[i][0].(string) < listed[j][0].(string) })
		return listed, found[a.User].Err
	}
	var gone []kadm.DeleteSCRAM
	var made []kadm.UpsertSCRAM
	if a.Password == nil {
		gone = append(gone, kadm.DeleteSCRAM{User: a.User, Mechanism: mechanism})
	} else {
		made = append(made, kadm.UpsertSCRAM{User: a.User, Mechanism: mechanism, Iterations: a.Iterations, Password: *a.Password})
	}
	done, err := admin.AlterUserSCRAMs(ctx, gone, made)
	if err != nil {
		return nil, err
	}
	return nil, done[a.User].Err
}
