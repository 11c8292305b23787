package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

type franzDriver struct {
	bootstrap string
	members   map[string]*franzMember
}

func newFranz(bootstrap string) driver {
	return &franzDriver{bootstrap, map[string]*franzMember{}}
}

func (d *franzDriver) client(options ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(strings.Split(d.bootstrap, ",")...)}, options...)...)
}

func (d *franzDriver) do(op string, a *Args) (any, error) {
	switch op {
	case "info":
		return map[string]any{"client": "franz-go", "version": "1"}, nil
	case "produce":
		return d.produce(a)
	case "read":
		return d.read(a)
	case "consumer_open":
		return nil, d.open(a)
	case "consumer_poll":
		return d.members[a.ID].poll(a.timeoutMs(1000))
	case "consumer_commit":
		return nil, d.members[a.ID].commit(a.Offsets)
	case "consumer_committed":
		return d.committed(a)
	case "consumer_seek":
		client := d.members[a.ID].client
		// -1 would mean "as the reset policy says", so the end is looked up.
		ends, err := kadm.NewClient(client).ListEndOffsets(context.Background(), a.Topic)
		if err != nil {
			return nil, err
		}
		end, _ := ends.Lookup(a.Topic, a.Partition)
		begin := int64(-2)
		offset := a.offsetOr(map[string]int64{"beginning": begin, "end": end.Offset})
		client.SetOffsets(map[string]map[int32]kgo.EpochOffset{
			a.Topic: {a.Partition: {Epoch: -1, Offset: offset}},
		})
		return nil, nil
	case "consumer_close":
		member := d.members[a.ID]
		delete(d.members, a.ID)
		member.client.Close()
		return nil, nil
	}
	return d.admin(op, a)
}

func (d *franzDriver) produce(a *Args) (any, error) {
	codecs := map[string]kgo.CompressionCodec{
		"": kgo.NoCompression(), "none": kgo.NoCompression(), "gzip": kgo.GzipCompression(),
		"snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	acks := map[int]kgo.Acks{0: kgo.NoAck(), 1: kgo.LeaderAck(), -1: kgo.AllISRAcks()}
	options := []kgo.Opt{
		kgo.ProducerBatchCompression(codecs[a.Compression]), kgo.RequiredAcks(acks[a.acks()]), kgo.AllowAutoTopicCreation(),
	}
	if !a.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	if len(a.Records) > 0 && a.Records[0].Partition != nil {
		options = append(options, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	}
	if a.MaxRequestBytes > 0 {
		options = append(options, kgo.ProducerBatchMaxBytes(int32(a.MaxRequestBytes)))
	}
	if a.LingerMs != nil {
		options = append(options, kgo.ProducerLinger(time.Duration(*a.LingerMs)*time.Millisecond))
	}
	client, err := d.client(options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	sent := make([]Sent, len(a.Records))
	var waiting sync.WaitGroup
	for i, given := range a.Records {
		record := &kgo.Record{Topic: a.Topic, Key: given.Key, Value: given.Value}
		if given.Partition != nil {
			record.Partition = *given.Partition
		}
		if given.Timestamp != nil {
			record.Timestamp = time.UnixMilli(*given.Timestamp)
		}
		for _, header := range given.Headers {
			var value []byte
			if header[1] != nil {
				value, _ = base64.StdEncoding.DecodeString(string(*header[1]))
			}
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: string(*header[0]), Value: value})
		}
		waiting.Add(1)
		client.Produce(context.Background(), record, func(done *kgo.Record, err error) {
			defer waiting.Done()
			if err != nil {
				sent[i].Error = describe(err)
				return
			}
			sent[i] = Sent{Partition: done.Partition, Offset: done.Offset, Timestamp: done.Timestamp.UnixMilli()}
		})
		if a.Each {
			waiting.Wait()
		}
	}
	waiting.Wait()
	return sent, nil
}

func franzRecord(r *kgo.Record) Record {
	timestamp, kind := r.Timestamp.UnixMilli(), int(r.Attrs.TimestampType())
	record := Record{
		Topic: r.Topic, Partition: &r.Partition, Offset: r.Offset, Timestamp: &timestamp, TimestampType: &kind,
		Key: r.Key, Value: r.Value, Headers: [][2]*Bytes{},
	}
	for _, header := range r.Headers {
		name := Bytes(header.Key)
		var value *Bytes
		if header.Value != nil {
			text := Bytes(base64.StdEncoding.EncodeToString(header.Value))
			value = &text
		}
		record.Headers = append(record.Headers, [2]*Bytes{&name, value})
	}
	return record
}

func consumerOptions(given *ConsumerConfig) []kgo.Opt {
	options := []kgo.Opt{}
	ms := func(value int) time.Duration { return time.Duration(value) * time.Millisecond }
	if given.FetchMaxBytes != nil {
		options = append(options, kgo.FetchMaxBytes(*given.FetchMaxBytes))
	}
	if given.MaxPartitionFetchBytes != nil {
		options = append(options, kgo.FetchMaxPartitionBytes(*given.MaxPartitionFetchBytes))
	}
	if given.FetchMinBytes != nil {
		options = append(options, kgo.FetchMinBytes(*given.FetchMinBytes))
	}
	if given.FetchMaxWaitMs != nil {
		options = append(options, kgo.FetchMaxWait(ms(*given.FetchMaxWaitMs)))
	}
	if given.SessionTimeoutMs != nil {
		options = append(options, kgo.SessionTimeout(ms(*given.SessionTimeoutMs)))
	}
	if given.HeartbeatIntervalMs != nil {
		options = append(options, kgo.HeartbeatInterval(ms(*given.HeartbeatIntervalMs)))
	}
	if given.RequestTimeoutMs != nil {
		options = append(options, kgo.RequestTimeoutOverhead(ms(*given.RequestTimeoutMs)))
	}
	if given.ClientID != nil {
		options = append(options, kgo.ClientID(*given.ClientID))
	}
	if given.InstanceID != nil {
		options = append(options, kgo.InstanceID(*given.InstanceID))
	}
	if given.OffsetReset != nil {
		resets := map[string]kgo.Offset{
			"earliest": kgo.NewOffset().AtStart(), "latest": kgo.NewOffset().AtEnd(), "none": kgo.NoResetOffset(),
		}
		options = append(options, kgo.ConsumeResetOffset(resets[*given.OffsetReset]))
	}
	if given.Assignors != nil {
		known := map[string]kgo.GroupBalancer{
			"range": kgo.RangeBalancer(), "roundrobin": kgo.RoundRobinBalancer(), "sticky": kgo.StickyBalancer(),
			"cooperative-sticky": kgo.CooperativeStickyBalancer(),
		}
		balancers := []kgo.GroupBalancer{}
		for _, name := range given.Assignors {
			balancers = append(balancers, known[name])
		}
		options = append(options, kgo.Balancers(balancers...))
	}
	return options
}

func (d *franzDriver) read(a *Args) (any, error) {
	base, err := d.client()
	if err != nil {
		return nil, err
	}
	defer base.Close()
	admin := kadm.NewClient(base)
	ctx, stop := context.WithTimeout(context.Background(), time.Duration(a.timeoutMs(30000))*time.Millisecond)
	defer stop()
	begins, err := admin.ListStartOffsets(ctx, a.Topic)
	if err != nil {
		return nil, err
	}
	ends, err := admin.ListEndOffsets(ctx, a.Topic)
	if err != nil {
		return nil, err
	}
	starts, unread := map[int32]kgo.Offset{}, map[int32]int64{}
	for _, partition := range a.partitionList() {
		begin, _ := begins.Lookup(a.Topic, partition)
		end, found := ends.Lookup(a.Topic, partition)
		if !found || end.Err != nil {
			return nil, fmt.Errorf("no offsets of partition %d: %w", partition, end.Err)
		}
		start := a.offsetOr(map[string]int64{"earliest": begin.Offset})
		starts[partition] = kgo.NewOffset().At(start)
		if start < end.Offset {
			unread[partition] = end.Offset
		}
	}
	options := append(consumerOptions(&a.Config),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{a.Topic: starts}), kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.KeepControlRecords())
	client, err := d.client(options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	records := []Record{}
	for a.Count == nil && len(unread) > 0 || a.Count != nil && len(records) < *a.Count {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(r *kgo.Record) {
			records = append(records, franzRecord(r))
			if r.Offset+1 >= unread[r.Partition] {
				delete(unread, r.Partition)
			}
		})
	}
	if a.Count != nil {
		records = records[:*a.Count]
	}
	return records, nil
}

type franzMember struct {
	client   *kgo.Client
	mutex    sync.Mutex
	assigned map[string]map[int32]bool
}

func (d *franzDriver) open(a *Args) error {
	member := &franzMember{assigned: map[string]map[int32]bool{}}
	update := func(has bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, changed map[string][]int32) {
			member.mutex.Lock()
			defer member.mutex.Unlock()
			for topic, partitions := range changed {
				if member.assigned[topic] == nil {
					member.assigned[topic] = map[int32]bool{}
				}
				for _, partition := range partitions {
					member.assigned[topic][partition] = has
				}
			}
		}
	}
	options := consumerOptions(&a.Config)
	if a.Assign != nil {
		where := map[string]map[int32]kgo.Offset{}
		for _, pair := range a.Assign {
			topic, partition := pair[0].(string), int32(pair[1].(float64))
			if where[topic] == nil {
				where[topic] = map[int32]kgo.Offset{}
			}
			start := kgo.NewOffset().AtStart()
			if a.Config.OffsetReset != nil && *a.Config.OffsetReset == "latest" {
				start = kgo.NewOffset().AtEnd()
			}
			where[topic][partition] = start
		}
		options = append(options, kgo.ConsumePartitions(where))
	} else {
		if a.Config.AutoCommit != nil && !*a.Config.AutoCommit {
			options = append(options, kgo.DisableAutoCommit())
		}
		options = append(options, kgo.ConsumerGroup(a.Group), kgo.OnPartitionsAssigned(update(true)),
			kgo.OnPartitionsRevoked(update(false)), kgo.OnPartitionsLost(update(false)))
		if a.Pattern != "" {
			options = append(options, kgo.ConsumeTopics(a.Pattern), kgo.ConsumeRegex())
		} else {
			options = append(options, kgo.ConsumeTopics(a.Topics...))
		}
	}
	client, err := d.client(options...)
	member.client = client
	d.members[a.ID] = member
	return err
}

func (m *franzMember) poll(timeoutMs int) (any, error) {
	ctx, stop := context.WithTimeout(context.Background(), time.Duration(timeoutMs)*time.Millisecond)
	defer stop()
	polled := Polled{Records: []Record{}, Assignment: [][]any{}}
	fetches := m.client.PollFetches(ctx)
	for _, failure := range fetches.Errors() {
		if failure.Err != context.DeadlineExceeded {
			return nil, failure.Err
		}
	}
	fetches.EachRecord(func(r *kgo.Record) { polled.Records = append(polled.Records, franzRecord(r)) })
	m.mutex.Lock()
	defer m.mutex.Unlock()
	for topic, partitions := range m.assigned {
		for partition, has := range partitions {
			if has {
				polled.Assignment = append(polled.Assignment, []any{topic, partition})
			}
		}
	}
	sortAssignment(polled.Assignment)
	return polled, nil
}

func (m *franzMember) commit(offsets []CommitOffset) error {
	ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
	defer stop()
	if offsets == nil {
		return m.client.CommitUncommittedOffsets(ctx)
	}
	places, notes := map[string]map[int32]kgo.EpochOffset{}, map[string]map[int32]string{}
	for _, o := range offsets {
		if places[o.Topic] == nil {
			places[o.Topic], notes[o.Topic] = map[int32]kgo.EpochOffset{}, map[int32]string{}
		}
		places[o.Topic][o.Partition] = kgo.EpochOffset{Epoch: -1, Offset: o.Offset}
		notes[o.Topic][o.Partition] = o.Metadata
	}
	ctx = kgo.PreCommitFnContext(ctx, func(request *kmsg.OffsetCommitRequest) error {
		for i := range request.Topics {
			for j := range request.Topics[i].Partitions {
				partition := &request.Topics[i].Partitions[j]
				note := notes[request.Topics[i].Topic][partition.Partition]
				partition.Metadata = &note
			}
		}
		return nil
	})
	var failed error
	m.client.CommitOffsetsSync(ctx, places, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, response *kmsg.OffsetCommitResponse, err error) {
		failed = err
	})
	return failed
}

func (d *franzDriver) committed(a *Args) (any, error) {
	client, err := d.client()
	if err != nil {
		return nil, err
	}
	defer client.Close()
	found, err := kadm.NewClient(client).FetchOffsetsForTopics(context.Background(), a.Group, a.Topic)
	if err != nil {
		return nil, err
	}
	offset, ok := found.Lookup(a.Topic, a.Partition)
	if !ok || offset.At < 0 {
		return nil, nil
	}
	return map[string]any{"offset": offset.At, "metadata": offset.Metadata}, offset.Err
}

func (d *franzDriver) admin(op string, a *Args) (any, error) {
	client, err := d.client()
	if err != nil {
		return nil, err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
	defer stop()
	one := func(list func(context.Context, ...string) (kadm.ListedOffsets, error)) (kadm.ListedOffset, error) {
		found, err := list(ctx, a.Topic)
		if err != nil {
			return kadm.ListedOffset{}, err
		}
		offset, _ := found.Lookup(a.Topic, a.Partition)
		return offset, offset.Err
	}
	switch op {
	case "offsets":
		begin, err := one(admin.ListStartOffsets)
		if err != nil {
			return nil, err
		}
		end, err := one(admin.ListEndOffsets)
		return map[string]int64{"earliest": begin.Offset, "latest": end.Offset}, err
	case "offset_for_time":
		found, err := one(func(ctx context.Context, topics ...string) (kadm.ListedOffsets, error) {
			return admin.ListOffsetsAfterMilli(ctx, a.Timestamp, topics...)
		})
		// kadm turns "none" into the end offset and keeps the timestamp -1.
		if err != nil || found.Timestamp < 0 {
			return nil, err
		}
		return map[string]int64{"offset": found.Offset, "timestamp": found.Timestamp}, nil
	case "max_timestamp":
		found, err := one(admin.ListMaxTimestampOffsets)
		return map[string]int64{"offset": found.Offset, "timestamp": found.Timestamp}, err
	}
	return d.topicsAndGroups(ctx, op, a, admin)
}

func (d *franzDriver) topicsAndGroups(ctx context.Context, op string, a *Args, admin *kadm.Client) (any, error) {
	switch op {
	case "create_topic":
		replication := int16(1)
		if a.Replication != nil {
			replication = *a.Replication
		}
		configs := map[string]*string{}
		for name, value := range a.Configs {
			configs[name] = &value
		}
		done, err := admin.CreateTopic(ctx, a.partitionCount(), replication, configs, a.Topic)
		if err != nil {
			return nil, err
		}
		return nil, done.Err
	case "delete_topic":
		done, err := admin.DeleteTopic(ctx, a.Topic)
		if err != nil {
			return nil, err
		}
		return nil, done.Err
	case "list_topics":
		found, err := admin.ListTopicsWithInternal(ctx)
		names := found.Names()
		sort.Strings(names)
		return names, err
	case "describe_topic":
		found, err := admin.ListTopics(ctx, a.Topic)
		if err != nil {
			return nil, err
		}
		if found[a.Topic].Err != nil {
			return nil, found[a.Topic].Err
		}
		partitions := []map[string]any{}
		for _, p := range found[a.Topic].Partitions.Sorted() {
			partitions = append(partitions, map[string]any{"id": p.Partition, "leader": p.Leader, "replicas": p.Replicas, "isr": p.ISR})
		}
		return map[string]any{"topic_id": found[a.Topic].ID.String(), "partitions": partitions}, nil
	case "describe_cluster":
		found, err := admin.BrokerMetadata(ctx)
		nodes := []map[string]any{}
		for _, b := range found.Brokers {
			nodes = append(nodes, map[string]any{"id": b.NodeID, "host": b.Host, "port": b.Port})
		}
		return map[string]any{"cluster_id": found.Cluster, "controller": found.Controller, "nodes": nodes}, err
	case "groups_list":
		found, err := admin.ListGroups(ctx)
		names := found.Groups()
		sort.Strings(names)
		return names, err
	case "group_describe":
		found, err := admin.DescribeGroups(ctx, a.Group)
		if err != nil {
			return nil, err
		}
		group := found[a.Group]
		if group.Err != nil {
			return nil, group.Err
		}
		members := []map[string]any{}
		for _, m := range group.Members {
			members = append(members, map[string]any{"client_id": m.ClientID, "host": m.ClientHost, "instance_id": m.InstanceID})
		}
		return map[string]any{"state": group.State, "protocol": group.Protocol, "members": members}, nil
	case "group_delete":
		_, err := admin.DeleteGroup(ctx, a.Group)
		return nil, err
	}
	return d.administration(ctx, op, a, admin)
}
