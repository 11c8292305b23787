// sarama: BOOTSTRAP TOPIC.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/IBM/sarama"
)

type reader struct {
	values chan string
}

func (reader) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (reader) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (r reader) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		session.MarkMessage(message, "")
		r.values <- string(message.Value)
	}
	return nil
}

func main() {
	brokers, topic := []string{os.Args[1]}, os.Args[2]
	config := sarama.NewConfig()
	config.Version = sarama.V2_1_0_0
	config.Producer.Return.Successes = true
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	producer, err := sarama.NewSyncProducer(brokers, config)
	check(err)
	for i := 0; i < 3; i++ {
		value := sarama.StringEncoder(fmt.Sprintf("hello %d", i))
		_, _, err = producer.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: value})
		check(err)
	}
	check(producer.Close())

	group, err := sarama.NewConsumerGroup(brokers, "readers", config)
	check(err)
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	found := reader{make(chan string, 3)}
	go func() {
		for ctx.Err() == nil {
			_ = group.Consume(ctx, []string{topic}, found)
		}
	}()
	for i := 0; i < 3; i++ {
		select {
		case <-found.values:
		case <-ctx.Done():
			check(ctx.Err())
		}
	}
	cancel()
	check(group.Close())
	fmt.Println("ok")
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
