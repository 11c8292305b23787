// Package test drives the helper with a real client, apart from the helper, which needs no other module.
package test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	ottlatest "github.com/ottla/ottla/helpers/go"
	"github.com/twmb/franz-go/pkg/kgo"
)

var shared *ottlatest.Broker

func TestMain(m *testing.M) {
	broker, err := ottlatest.Run()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	shared = broker
	code := m.Run()
	broker.Stop()
	broker.Stop()
	os.Exit(code)
}

func client(t *testing.T, broker *ottlatest.Broker, options ...kgo.Opt) *kgo.Client {
	t.Helper()
	made, err := kgo.NewClient(append(options, kgo.SeedBrokers(broker.Bootstrap))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(made.Close)
	return made
}

func TestAGroupReadsWhatIsThere(t *testing.T) {
	broker := shared.For(t)
	broker.CreateTopic("orders", 2, map[string]string{"retention.ms": "60000000"})
	broker.Append("orders", "a", "b")
	if lag := broker.Lag("billing", "orders"); lag != 2 {
		t.Fatalf("lag %d", lag)
	}
	reader := client(t, broker, kgo.ConsumerGroup("billing"), kgo.ConsumeTopics("orders"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for read := 0; read < 2; {
		read += reader.PollFetches(ctx).NumRecords()
	}
	broker.WaitUntilStable("billing", 1, 10*time.Second)
	if err := reader.CommitUncommittedOffsets(ctx); err != nil {
		t.Fatal(err)
	}
	broker.WaitUntilCaughtUp("billing", "orders", 10*time.Second)
	broker.WaitForRequest("OffsetCommit", 5*time.Second)
}

func TestFaultsTimeAndRecords(t *testing.T) {
	broker := ottlatest.Start(t, ottlatest.WithTopic("t", 1))
	fault := broker.AddFault("error", map[string]any{"api": "Produce", "error": "NOT_LEADER_OR_FOLLOWER", "times": 1})
	writer := client(t, broker)
	record := &kgo.Record{Topic: "t", Value: []byte{0xff, 1}}
	if err := writer.ProduceSync(context.Background(), record).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if fault.Refresh().Fired != 1 {
		t.Fatalf("the fault has struck %d times", fault.Fired)
	}
	found := broker.WaitForRecords("t", 1, 5*time.Second)
	if len(found) != 1 || string(found[0].Value) != "\xff\x01" || found[0].Key != nil {
		t.Fatalf("%+v", found)
	}
	before := found[0].Timestamp
	broker.Advance(48 * time.Hour)
	broker.Append("t", "later")
	if later := broker.Records("t")[1]; later.Timestamp-before < 47*3600_000 {
		t.Fatalf("%d then %d", before, later.Timestamp)
	}
	broker.ClearFaults()
	broker.Reset()
}

func TestSnapshots(t *testing.T) {
	broker := ottlatest.Start(t)
	broker.Append("t", "a")
	state := broker.Snapshot()
	broker.Append("t", "b")
	broker.Restore(state)
	if found := broker.Records("t"); len(found) != 1 {
		t.Fatalf("%+v", found)
	}
	broker.Down()
	if _, err := net.DialTimeout("tcp", broker.Bootstrap, time.Second); err == nil {
		t.Fatal("it listens")
	}
	broker.Up()
}

func TestSecurity(t *testing.T) {
	broker := ottlatest.Start(t, ottlatest.WithTLS(), ottlatest.WithUser("alice", "secret"))
	if broker.Security == nil || broker.Security.Protocol != "SASL_SSL" || filepath.Base(broker.Security.CAFile) != "ca.pem" {
		t.Fatalf("%+v", broker.Security)
	}
}

func TestMistakes(t *testing.T) {
	if _, err := ottlatest.Run(ottlatest.WithArgs("--topic", "a:many")); err == nil || !strings.Contains(err.Error(), "--topic takes") {
		t.Fatal(err)
	}
	func() {
		defer func() {
			if text := fmt.Sprint(recover()); !strings.Contains(text, "there is no topic 'nope'") {
				t.Fatal(text)
			}
		}()
		shared.Records("nope")
	}()
	t.Setenv("OTTLA_COMMAND", "/does/not/exist")
	if _, err := ottlatest.Run(); err == nil || !strings.Contains(err.Error(), "pip install ottla") {
		t.Fatal(err)
	}
}
