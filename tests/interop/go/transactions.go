// Transactions of the Go clients; the operations are in test_transactions_clients.
package main

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"
)

const transactionWait = 80 * time.Second

type franzTransactions struct {
	bootstrap string
	producers map[string]*kgo.Client
	names     map[string]string
}

func newFranzTransactions(bootstrap string) driver {
	return &franzTransactions{bootstrap, map[string]*kgo.Client{}, map[string]string{}}
}

func (d *franzTransactions) do(op string, a *Args) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), transactionWait)
	defer cancel()
	switch op {
	case "open":
		return nil, d.open(ctx, a)
	case "begin":
		return nil, d.producers[a.ID].BeginTransaction()
	case "send":
		var records []*kgo.Record
		for _, value := range a.Values {
			records = append(records, &kgo.Record{Topic: a.Topic, Partition: a.Partition, Value: []byte(value)})
		}
		return nil, d.producers[a.ID].ProduceSync(ctx, records...).FirstErr()
	case "commit":
		return nil, d.producers[a.ID].EndTransaction(ctx, kgo.TryCommit)
	case "abort":
		if err := d.producers[a.ID].AbortBufferedRecords(ctx); err != nil {
			return nil, err
		}
		return nil, d.producers[a.ID].EndTransaction(ctx, kgo.TryAbort)
	case "transform":
		return nil, d.transform(ctx, a)
	case "read":
		return d.read(ctx, a)
	}
	return nil, fmt.Errorf("unknown operation %s", op)
}

func (d *franzTransactions) open(ctx context.Context, a *Args) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(d.bootstrap),
		kgo.TransactionalID(a.TransactionalID),
		kgo.TransactionTimeout(time.Duration(a.timeoutMs(60000))*time.Millisecond),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	if err != nil {
		return err
	}
	d.producers[a.ID], d.names[a.ID] = client, a.TransactionalID
	_, _, err = client.ProducerID(ctx) // otherwise it waits for the first record, and fences nobody until then
	return err
}

func (d *franzTransactions) transform(ctx context.Context, a *Args) error {
	d.producers[a.ID].Close() // the session has a producer of its own, under the same id
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(d.bootstrap),
		kgo.TransactionalID(d.names[a.ID]),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ConsumerGroup(a.Group),
		kgo.ConsumeTopics(a.Source),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxWait(50*time.Millisecond),
		kgo.RequireStableFetchOffsets(),
		kgo.SessionTimeout(6*time.Second), // the shortest that brokers allow: another worker takes over after it
		kgo.HeartbeatInterval(500*time.Millisecond),
	)
	if err != nil {
		return err
	}
	defer session.Close()
	for left := *a.Count; left > 0; {
		fetches := session.PollRecords(ctx, 4)
		if err := fetches.Err(); err != nil {
			return err
		}
		if fetches.NumRecords() == 0 {
			continue
		}
		if err := session.Begin(); err != nil {
			return err
		}
		var promise kgo.FirstErrPromise
		fetches.EachRecord(func(record *kgo.Record) {
			session.Produce(ctx, &kgo.Record{Topic: a.Target, Value: bytes.ToUpper(record.Value)}, promise.Promise())
		})
		committed, err := session.End(ctx, promise.Err() == nil)
		if err != nil {
			return err
		}
		if committed {
			left -= fetches.NumRecords()
		}
		if a.LingerMs != nil { // slow work, so that a test can stop it in the middle
			time.Sleep(time.Duration(*a.LingerMs) * time.Millisecond)
		}
	}
	return nil
}

func (d *franzTransactions) read(ctx context.Context, a *Args) (any, error) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(d.bootstrap),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{a.Topic: {0: kgo.NewOffset().AtStart()}}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxWait(50*time.Millisecond),
	)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	values := []string{}
	for len(values) < *a.Count {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(record *kgo.Record) { values = append(values, string(record.Value)) })
	}
	return values, nil
}

type saramaTransactions struct {
	bootstrap []string
	producers map[string]sarama.SyncProducer
}

func newSaramaTransactions(bootstrap string) driver {
	return &saramaTransactions{[]string{bootstrap}, map[string]sarama.SyncProducer{}}
}

func (d *saramaTransactions) config() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Net.MaxOpenRequests = 1
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.MaxWaitTime = 50 * time.Millisecond
	return config
}

func (d *saramaTransactions) do(op string, a *Args) (any, error) {
	switch op {
	case "open":
		config := d.config()
		config.Producer.Idempotent = true
		config.Producer.Transaction.ID = a.TransactionalID
		config.Producer.Transaction.Timeout = time.Duration(a.timeoutMs(60000)) * time.Millisecond
		producer, err := sarama.NewSyncProducer(d.bootstrap, config)
		d.producers[a.ID] = producer
		return nil, err
	case "begin":
		return nil, d.producers[a.ID].BeginTxn()
	case "send":
		for _, value := range a.Values {
			message := &sarama.ProducerMessage{Topic: a.Topic, Partition: a.Partition, Value: sarama.StringEncoder(value)}
			if _, _, err := d.producers[a.ID].SendMessage(message); err != nil {
				return nil, err
			}
		}
		return nil, nil
	case "commit":
		return nil, d.producers[a.ID].CommitTxn()
	case "abort":
		return nil, d.producers[a.ID].AbortTxn()
	case "transform":
		return nil, d.transform(a)
	case "read":
		return d.read(a)
	}
	return nil, fmt.Errorf("unknown operation %s", op)
}

// saramaTransform is a group member that copies every record in a transaction of its own, with the offset.
type saramaTransform struct {
	producer sarama.SyncProducer
	args     *Args
	left     int
	failure  error
	stop     context.CancelFunc
}

func (t *saramaTransform) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (t *saramaTransform) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (t *saramaTransform) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			if t.failure = t.copy(message); t.failure != nil {
				t.stop()
				return t.failure
			}
			if t.left--; t.left == 0 {
				t.stop()
				return nil
			}
		case <-session.Context().Done():
			return nil
		}
	}
}

func (t *saramaTransform) copy(message *sarama.ConsumerMessage) error {
	if err := t.producer.BeginTxn(); err != nil {
		return err
	}
	value := sarama.ByteEncoder(bytes.ToUpper(message.Value))
	if _, _, err := t.producer.SendMessage(&sarama.ProducerMessage{Topic: t.args.Target, Value: value}); err != nil {
		return err
	}
	if err := t.producer.AddMessageToTxn(message, t.args.Group, nil); err != nil {
		return err
	}
	return t.producer.CommitTxn()
}

func (d *saramaTransactions) transform(a *Args) error {
	group, err := sarama.NewConsumerGroup(d.bootstrap, a.Group, d.config())
	if err != nil {
		return err
	}
	defer group.Close()
	ctx, cancel := context.WithTimeout(context.Background(), transactionWait)
	defer cancel()
	work := &saramaTransform{producer: d.producers[a.ID], args: a, left: *a.Count, stop: cancel}
	for work.left > 0 && work.failure == nil && ctx.Err() == nil {
		if err := group.Consume(ctx, []string{a.Source}, work); err != nil {
			return err
		}
	}
	return work.failure
}

func (d *saramaTransactions) read(a *Args) (any, error) {
	consumer, err := sarama.NewConsumer(d.bootstrap, d.config())
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	partition, err := consumer.ConsumePartition(a.Topic, 0, sarama.OffsetOldest)
	if err != nil {
		return nil, err
	}
	defer partition.Close()
	values := []string{}
	deadline := time.After(transactionWait)
	for len(values) < *a.Count {
		select {
		case message := <-partition.Messages():
			values = append(values, string(message.Value))
		case <-deadline:
			return values, nil
		}
	}
	return values, nil
}
