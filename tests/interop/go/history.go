// Transactions of franz-go for the checker of histories: one operation a line on stdout, until stdin ends.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type operation struct {
	Process int    `json:"process"`
	Outcome string `json:"outcome"`
	Steps   []any  `json:"steps"`
	Moves   bool   `json:"moves,omitempty"`
}

const transactTimeout = 20 * time.Second

// runHistory takes: bootstrap, topic, partitions, process, seed.
func runHistory(args []string) {
	bootstrap, topic := args[0], args[1]
	partitions, _ := strconv.Atoi(args[2])
	process, _ := strconv.Atoi(args[3])
	seed, _ := strconv.ParseInt(args[4], 10, 64)
	var stopped atomic.Bool
	go func() {
		io.Copy(io.Discard, os.Stdin)
		stopped.Store(true)
	}()
	offsets := map[string]map[int32]kgo.Offset{topic: {}}
	for partition := 0; partition < partitions; partition++ {
		offsets[topic][int32(partition)] = kgo.NewOffset().At(0)
	}
	consumer, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ConsumePartitions(offsets),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxWait(20*time.Millisecond))
	if err != nil {
		panic(err)
	}
	defer consumer.Close()
	chance := rand.New(rand.NewSource(seed))
	value := int64(process+1) * 1_000_000_000
	var producer *kgo.Client
	moves := true
	out := json.NewEncoder(os.Stdout)
	for !stopped.Load() {
		if producer == nil {
			producer, err = kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.TransactionalID(fmt.Sprintf("history-%d", process)),
				kgo.TransactionTimeout(8*time.Second), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0))
			if err != nil {
				panic(err)
			}
		}
		done := operation{Process: process, Outcome: "info", Moves: moves}
		moves = false
		keep := transact(producer, consumer, chance, topic, partitions, &value, &done)
		out.Encode(done)
		if !keep {
			producer.CloseAllowingRebalance()
			producer = nil
		}
	}
}

// transact reports whether the producer can go on.
func transact(producer, consumer *kgo.Client, chance *rand.Rand, topic string, partitions int, value *int64, done *operation) bool {
	ctx, cancel := context.WithTimeout(context.Background(), transactTimeout)
	defer cancel()
	done.Outcome = "fail"
	if producer.BeginTransaction() != nil {
		return false
	}
	sound := true
	for count := 1 + chance.Intn(3); count > 0; count-- {
		if chance.Float64() < 0.5 {
			done.Steps = append(done.Steps, []any{"poll", pollSome(consumer)})
		}
		*value++
		partition := int32(chance.Intn(partitions))
		record := &kgo.Record{Topic: topic, Partition: partition, Value: []byte(strconv.FormatInt(*value, 10))}
		sent, err := producer.ProduceSync(ctx, record).First()
		if err != nil {
			done.Steps = append(done.Steps, []any{"send", partition, *value, nil})
			sound = false
			break
		}
		done.Steps = append(done.Steps, []any{"send", partition, *value, sent.Offset})
	}
	if !sound || chance.Float64() < 0.2 {
		if err := producer.AbortBufferedRecords(ctx); err != nil {
			return false
		}
		return producer.EndTransaction(ctx, kgo.TryAbort) == nil
	}
	if err := producer.EndTransaction(ctx, kgo.TryCommit); err != nil {
		done.Outcome = "info"
		return false
	}
	done.Outcome = "ok"
	return true
}

func pollSome(consumer *kgo.Client) map[string][][2]int64 {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	found := map[string][][2]int64{}
	consumer.PollRecords(ctx, 50).EachRecord(func(record *kgo.Record) {
		value, _ := strconv.ParseInt(string(record.Value), 10, 64)
		partition := strconv.Itoa(int(record.Partition))
		found[partition] = append(found[partition], [2]int64{record.Offset, value})
	})
	return found
}
