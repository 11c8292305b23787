package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

var saramaCodecs = map[string]sarama.CompressionCodec{
	"": sarama.CompressionNone, "none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP,
	"snappy": sarama.CompressionSnappy, "lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
}

type saramaDriver struct {
	bootstrap []string
	members   map[string]*saramaMember
}

func newSarama(bootstrap string) driver {
	return &saramaDriver{strings.Split(bootstrap, ","), map[string]*saramaMember{}}
}

func (d *saramaDriver) config() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Producer.Return.Successes = true
	config.Consumer.Return.Errors = true
	config.Metadata.Retry.Max = 10
	return config
}

func (d *saramaDriver) consumerConfig(given *ConsumerConfig) *sarama.Config {
	config := d.config()
	if given.FetchMaxBytes != nil {
		config.Consumer.Fetch.Max = *given.FetchMaxBytes
	}
	if given.MaxPartitionFetchBytes != nil {
		config.Consumer.Fetch.Default = *given.MaxPartitionFetchBytes
	}
	if given.FetchMinBytes != nil {
		config.Consumer.Fetch.Min = *given.FetchMinBytes
	}
	if given.FetchMaxWaitMs != nil {
		config.Consumer.MaxWaitTime = time.Duration(*given.FetchMaxWaitMs) * time.Millisecond
	}
	if given.SessionTimeoutMs != nil {
		config.Consumer.Group.Session.Timeout = time.Duration(*given.SessionTimeoutMs) * time.Millisecond
	}
	if given.HeartbeatIntervalMs != nil {
		config.Consumer.Group.Heartbeat.Interval = time.Duration(*given.HeartbeatIntervalMs) * time.Millisecond
	}
	if given.RequestTimeoutMs != nil {
		config.Net.ReadTimeout = time.Duration(*given.RequestTimeoutMs) * time.Millisecond
	}
	if given.AutoCommit != nil {
		config.Consumer.Offsets.AutoCommit.Enable = *given.AutoCommit
	}
	if given.OffsetReset != nil && *given.OffsetReset == "earliest" {
		config.Consumer.Offsets.Initial = sarama.OffsetOldest
	}
	if given.ClientID != nil {
		config.ClientID = *given.ClientID
	}
	if given.InstanceID != nil {
		config.Consumer.Group.InstanceId = *given.InstanceID
	}
	if given.Assignors != nil {
		known := map[string]sarama.BalanceStrategy{
			"range": sarama.NewBalanceStrategyRange(), "roundrobin": sarama.NewBalanceStrategyRoundRobin(),
			"sticky": sarama.NewBalanceStrategySticky(),
		}
		config.Consumer.Group.Rebalance.GroupStrategies = nil
		for _, name := range given.Assignors {
			config.Consumer.Group.Rebalance.GroupStrategies = append(config.Consumer.Group.Rebalance.GroupStrategies, known[name])
		}
	}
	return config
}

func (d *saramaDriver) do(op string, a *Args) (any, error) {
	switch op {
	case "info":
		return map[string]any{"client": "sarama", "version": sarama.MaxVersion.String()}, nil
	case "produce":
		return d.produce(a)
	case "read":
		return d.read(a)
	case "offsets":
		return d.offsets(a)
	case "offset_for_time":
		return d.offsetForTime(a)
	case "consumer_open":
		return nil, d.open(a)
	case "consumer_poll":
		return d.members[a.ID].poll(a.timeoutMs(1000)), nil
	case "consumer_commit":
		return nil, d.members[a.ID].commit(a.Offsets)
	case "consumer_committed":
		return d.committed(a)
	case "consumer_close":
		member := d.members[a.ID]
		delete(d.members, a.ID)
		return nil, member.close()
	}
	return d.admin(op, a)
}

func saramaHeaders(headers [][2]*Bytes) []sarama.RecordHeader {
	var out []sarama.RecordHeader
	for _, header := range headers {
		var value []byte
		if header[1] != nil {
			value, _ = base64.StdEncoding.DecodeString(string(*header[1]))
		}
		out = append(out, sarama.RecordHeader{Key: []byte(*header[0]), Value: value})
	}
	return out
}

func (d *saramaDriver) produce(a *Args) (any, error) {
	config := d.config()
	config.Producer.Compression = saramaCodecs[a.Compression]
	config.Producer.RequiredAcks = sarama.RequiredAcks(a.acks())
	config.Producer.Partitioner = sarama.NewHashPartitioner
	if len(a.Records) > 0 && a.Records[0].Partition != nil {
		config.Producer.Partitioner = sarama.NewManualPartitioner
	}
	if a.Idempotent {
		config.Producer.Idempotent = true
		config.Net.MaxOpenRequests = 1
	}
	if a.MaxRequestBytes > 0 {
		config.Producer.MaxMessageBytes = a.MaxRequestBytes
	}
	producer, err := sarama.NewSyncProducer(d.bootstrap, config)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	messages := make([]*sarama.ProducerMessage, len(a.Records))
	for i, record := range a.Records {
		message := &sarama.ProducerMessage{Topic: a.Topic, Headers: saramaHeaders(record.Headers), Metadata: i}
		if record.Partition != nil {
			message.Partition = *record.Partition
		}
		if record.Timestamp != nil {
			message.Timestamp = time.UnixMilli(*record.Timestamp)
		}
		if record.Key != nil {
			message.Key = sarama.ByteEncoder(record.Key)
		}
		if record.Value != nil {
			message.Value = sarama.ByteEncoder(record.Value)
		}
		messages[i] = message
	}
	failed := map[int]error{}
	if a.Each {
		for i, message := range messages {
			if _, _, err := producer.SendMessage(message); err != nil {
				failed[i] = err
			}
		}
	} else if err := producer.SendMessages(messages); err != nil {
		many, ok := err.(sarama.ProducerErrors)
		if !ok {
			return nil, err
		}
		for _, one := range many {
			failed[one.Msg.Metadata.(int)] = one.Err
		}
	}
	sent := make([]Sent, len(messages))
	for i, message := range messages {
		if err := failed[i]; err != nil {
			sent[i].Error = describe(err)
		} else {
			sent[i] = Sent{Partition: message.Partition, Offset: message.Offset, Timestamp: message.Timestamp.UnixMilli()}
		}
	}
	return sent, nil
}

func saramaRecord(m *sarama.ConsumerMessage) Record {
	timestamp := m.Timestamp.UnixMilli()
	record := Record{
		Topic: m.Topic, Partition: &m.Partition, Offset: m.Offset, Timestamp: &timestamp, Key: m.Key, Value: m.Value,
		Headers: [][2]*Bytes{},
	}
	for _, header := range m.Headers {
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

func (d *saramaDriver) read(a *Args) (any, error) {
	client, err := sarama.NewClient(d.bootstrap, d.consumerConfig(&a.Config))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	records := []Record{}
	deadline := time.After(time.Duration(a.timeoutMs(30000)) * time.Millisecond)
	for _, partition := range a.partitionList() {
		end, err := client.GetOffset(a.Topic, partition, sarama.OffsetNewest)
		if err != nil {
			return nil, err
		}
		begin, err := client.GetOffset(a.Topic, partition, sarama.OffsetOldest)
		if err != nil {
			return nil, err
		}
		start := a.offsetOr(map[string]int64{"earliest": begin})
		if a.Count == nil && start >= end {
			continue
		}
		claim, err := consumer.ConsumePartition(a.Topic, partition, start)
		if err != nil {
			return nil, err
		}
		for at := start; a.Count == nil && at < end || a.Count != nil && len(records) < *a.Count; {
			select {
			case message := <-claim.Messages():
				records = append(records, saramaRecord(message))
				at = message.Offset + 1
			case err := <-claim.Errors():
				return nil, err
			case <-deadline:
				return nil, fmt.Errorf("timed out after %d records", len(records))
			}
		}
		if err := claim.Close(); err != nil {
			return nil, err
		}
	}
	return records, nil
}

func (d *saramaDriver) offsets(a *Args) (any, error) {
	client, err := sarama.NewClient(d.bootstrap, d.config())
	if err != nil {
		return nil, err
	}
	defer client.Close()
	begin, err := client.GetOffset(a.Topic, a.Partition, sarama.OffsetOldest)
	if err != nil {
		return nil, err
	}
	end, err := client.GetOffset(a.Topic, a.Partition, sarama.OffsetNewest)
	return map[string]int64{"earliest": begin, "latest": end}, err
}

// offsetForTime has no timestamp to give: sarama keeps only the offset.
func (d *saramaDriver) offsetForTime(a *Args) (any, error) {
	client, err := sarama.NewClient(d.bootstrap, d.config())
	if err != nil {
		return nil, err
	}
	defer client.Close()
	offset, err := client.GetOffset(a.Topic, a.Partition, a.Timestamp)
	if err != nil || offset < 0 {
		return nil, err
	}
	return map[string]any{"offset": offset, "timestamp": nil}, nil
}

// saramaMember is a group member: sarama calls it back on every rebalance, poll drains what arrived.
type saramaMember struct {
	group   sarama.ConsumerGroup
	stop    context.CancelFunc
	done    chan struct{}
	arrived chan *sarama.ConsumerMessage
	mutex   sync.Mutex
	session sarama.ConsumerGroupSession
	// What poll handed out and commit has yet to mark.
	unmarked []*sarama.ConsumerMessage
}

func (m *saramaMember) Setup(session sarama.ConsumerGroupSession) error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.session = session
	return nil
}

func (m *saramaMember) Cleanup(sarama.ConsumerGroupSession) error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.session = nil
	return nil
}

func (m *saramaMember) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			select {
			case m.arrived <- message:
			case <-session.Context().Done():
				return nil
			}
		case <-session.Context().Done():
			return nil
		}
	}
}

func (d *saramaDriver) open(a *Args) error {
	group, err := sarama.NewConsumerGroup(d.bootstrap, a.Group, d.consumerConfig(&a.Config))
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	member := &saramaMember{group: group, stop: stop, done: make(chan struct{}), arrived: make(chan *sarama.ConsumerMessage)}
	d.members[a.ID] = member
	go func() {
		for err := range group.Errors() {
			fmt.Fprintln(os.Stderr, "sarama:", err)
		}
	}()
	go func() {
		defer close(member.done)
		for ctx.Err() == nil {
			if err := group.Consume(ctx, a.Topics, member); err != nil {
				fmt.Fprintln(os.Stderr, "sarama:", err)
				if ctx.Err() == nil {
					time.Sleep(100 * time.Millisecond)
				}
			}
		}
	}()
	return nil
}

func (m *saramaMember) poll(timeoutMs int) Polled {
	polled := Polled{Records: []Record{}, Assignment: [][]any{}}
	wait := time.After(time.Duration(timeoutMs) * time.Millisecond)
	for waiting := true; waiting; {
		select {
		case message := <-m.arrived:
			m.unmarked = append(m.unmarked, message)
			polled.Records = append(polled.Records, saramaRecord(message))
			// Something came: take what is right behind it, and no more waiting.
			wait = time.After(20 * time.Millisecond)
		case <-wait:
			waiting = false
		}
	}
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.session != nil {
		for topic, partitions := range m.session.Claims() {
			for _, partition := range partitions {
				polled.Assignment = append(polled.Assignment, []any{topic, partition})
			}
		}
	}
	sortAssignment(polled.Assignment)
	return polled
}

func sortAssignment(list [][]any) {
	sort.Slice(list, func(i, j int) bool {
		if list[i][0] != list[j][0] {
			return list[i][0].(string) < list[j][0].(string)
		}
		return list[i][1].(int32) < list[j][1].(int32)
	})
}

func (m *saramaMember) commit(offsets []CommitOffset) error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.session == nil {
		return fmt.Errorf("no session")
	}
	if offsets == nil {
		for _, message := range m.unmarked {
			m.session.MarkMessage(message, "")
		}
		m.unmarked = nil
	}
	for _, o := range offsets {
		// Mark moves only forward, Reset only back.
		m.session.MarkOffset(o.Topic, o.Partition, o.Offset, o.Metadata)
		m.session.ResetOffset(o.Topic, o.Partition, o.Offset, o.Metadata)
	}
	m.session.Commit()
	return nil
}

func (m *saramaMember) close() error {
	m.stop()
	<-m.done
	return m.group.Close()
}

func (d *saramaDriver) committed(a *Args) (any, error) {
	admin, err := sarama.NewClusterAdmin(d.bootstrap, d.config())
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	found, err := admin.ListConsumerGroupOffsets(a.Group, map[string][]int32{a.Topic: {a.Partition}})
	if err != nil {
		return nil, err
	}
	block := found.GetBlock(a.Topic, a.Partition)
	if block == nil || block.Offset < 0 {
		return nil, nil
	}
	return map[string]any{"offset": block.Offset, "metadata": block.Metadata}, nil
}

func (d *saramaDriver) admin(op string, a *Args) (any, error) {
	admin, err := sarama.NewClusterAdmin(d.bootstrap, d.config())
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	switch op {
	case "create_topic":
		detail := &sarama.TopicDetail{NumPartitions: a.partitionCount(), ReplicationFactor: 1, ConfigEntries: map[string]*string{}}
		if a.Replication != nil {
			detail.ReplicationFactor = *a.Replication
		}
		for name, value := range a.Configs {
			detail.ConfigEntries[name] = &value
		}
		return nil, admin.CreateTopic(a.Topic, detail, false)
	case "delete_topic":
		return nil, admin.DeleteTopic(a.Topic)
	case "list_topics":
		found, err := admin.ListTopics()
		names := []string{}
		for name := range found {
			names = append(names, name)
		}
		sort.Strings(names)
		return names, err
	case "describe_topic":
		found, err := admin.DescribeTopics([]string{a.Topic})
		if err != nil {
			return nil, err
		}
		if found[0].Err != sarama.ErrNoError {
			return nil, found[0].Err
		}
		partitions := []map[string]any{}
		for _, p := range found[0].Partitions {
			partitions = append(partitions, map[string]any{"id": p.ID, "leader": p.Leader, "replicas": p.Replicas, "isr": p.Isr})
		}
		sort.Slice(partitions, func(i, j int) bool { return partitions[i]["id"].(int32) < partitions[j]["id"].(int32) })
		return map[string]any{"partitions": partitions}, nil
	case "describe_cluster":
		brokers, controller, err := admin.DescribeCluster()
		nodes := []map[string]any{}
		for _, b := range brokers {
			host, port := splitAddress(b.Addr())
			nodes = append(nodes, map[string]any{"id": b.ID(), "host": host, "port": port})
		}
		return map[string]any{"cluster_id": nil, "controller": controller, "nodes": nodes}, err
	case "groups_list":
		found, err := admin.ListConsumerGroups()
		names := []string{}
		for name := range found {
			names = append(names, name)
		}
		sort.Strings(names)
		return names, err
	case "group_describe":
		found, err := admin.DescribeConsumerGroups([]string{a.Group})
		if err != nil {
			return nil, err
		}
		members := []map[string]any{}
		for _, m := range found[0].Members {
			members = append(members, map[string]any{"client_id": m.ClientId, "host": m.ClientHost, "instance_id": m.GroupInstanceId})
		}
		return map[string]any{"state": found[0].State, "protocol": found[0].Protocol, "members": members}, nil
	case "group_delete":
		return nil, admin.DeleteConsumerGroup(a.Group)
	}
	return d.administration(op, a, admin)
}

func splitAddress(address string) (string, int) {
	for i := len(address) - 1; i >= 0; i-- {
		if address[i] == ':' {
			port, _ := strconv.Atoi(address[i+1:])
			return address[:i], port
		}
	}
	return address, 0
}
