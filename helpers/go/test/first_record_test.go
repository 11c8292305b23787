package test

import (
	"context"
	"testing"
	"time"

	ottlatest "github.com/ottla/ottla/helpers/go"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// From nothing to the first record that a group has consumed, beside a fake in the same process.

func consumeFirst(b *testing.B, bootstrap string) {
	b.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ConsumerGroup("g"), kgo.ConsumeTopics("t"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.AllowAutoTopicCreation())
	if err != nil {
		b.Fatal(err)
	}
	defer client.CloseAllowingRebalance()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := client.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte("x")}).FirstErr(); err != nil {
		b.Fatal(err)
	}
	for client.PollFetches(ctx).NumRecords() == 0 {
		if ctx.Err() != nil {
			b.Fatal(ctx.Err())
		}
	}
}

func BenchmarkFirstRecordOttla(b *testing.B) {
	for range b.N {
		broker, err := ottlatest.Run(ottlatest.WithTopic("t", 1))
		if err != nil {
			b.Fatal(err)
		}
		consumeFirst(b, broker.Bootstrap)
		b.StopTimer()
		broker.Stop()
		b.StartTimer()
	}
}

func BenchmarkFirstRecordKfake(b *testing.B) {
	for range b.N {
		cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
		if err != nil {
			b.Fatal(err)
		}
		consumeFirst(b, cluster.ListenAddrs()[0])
		b.StopTimer()
		cluster.Close()
		b.StartTimer()
	}
}
