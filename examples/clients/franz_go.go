// franz-go: BOOTSTRAP TOPIC.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	bootstrap, topic := os.Args[1], os.Args[2]
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap),
		kgo.ConsumerGroup("readers"),
		kgo.ConsumeTopics(topic),
		kgo.AllowAutoTopicCreation(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	check(err)
	defer client.Close()
	for i := 0; i < 3; i++ {
		record := &kgo.Record{Topic: topic, Value: []byte(fmt.Sprintf("hello %d", i))}
		check(client.ProduceSync(ctx, record).FirstErr())
	}
	for seen := 0; seen < 3; {
		fetches := client.PollFetches(ctx)
		check(ctx.Err())
		seen += len(fetches.Records())
	}
	check(client.CommitUncommittedOffsets(ctx))
	fmt.Println("ok")
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
