// segmentio kafka-go: BOOTSTRAP TOPIC.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/segmentio/kafka-go"
)

func main() {
	bootstrap, topic := os.Args[1], os.Args[2]
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	writer := &kafka.Writer{
		Addr: kafka.TCP(bootstrap), Topic: topic, BatchTimeout: 10 * time.Millisecond, AllowAutoTopicCreation: true,
	}
	for i := 0; i < 3; i++ {
		check(writer.WriteMessages(ctx, kafka.Message{Value: []byte(fmt.Sprintf("hello %d", i))}))
	}
	check(writer.Close())

	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{bootstrap}, Topic: topic, GroupID: "readers", StartOffset: kafka.FirstOffset,
	})
	for i := 0; i < 3; i++ {
		_, err := reader.ReadMessage(ctx)
		check(err)
	}
	check(reader.Close())
	fmt.Println("ok")
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
