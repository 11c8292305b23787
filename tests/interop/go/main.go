// The Go clients behind the driver protocol of tests/interop: one JSON request a line on stdin, one JSON answer a line on
// stdout. The first argument picks the client (sarama, franz), the second is the bootstrap address.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kerr"
)

// Record is one record on its way in or out; []byte travels as base64, nil as null.
type Record struct {
	Topic         string      `json:"topic"`
	Partition     *int32      `json:"partition"`
	Offset        int64       `json:"offset"`
	Timestamp     *int64      `json:"timestamp"`
	TimestampType *int        `json:"timestamp_type"`
	Key           []byte      `json:"key"`
	Value         []byte      `json:"value"`
	Headers       [][2]*Bytes `json:"headers"`
}

// Bytes is a header's name (plain text) or value (base64): both arrive as JSON strings, so they are kept as text.
type Bytes string

type ConsumerConfig struct {
	FetchMaxBytes          *int32   `json:"fetch_max_bytes"`
	MaxPartitionFetchBytes *int32   `json:"max_partition_fetch_bytes"`
	FetchMinBytes          *int32   `json:"fetch_min_bytes"`
	FetchMaxWaitMs         *int     `json:"fetch_max_wait_ms"`
	SessionTimeoutMs       *int     `json:"session_timeout_ms"`
	HeartbeatIntervalMs    *int     `json:"heartbeat_interval_ms"`
	RequestTimeoutMs       *int     `json:"request_timeout_ms"`
	AutoCommit             *bool    `json:"auto_commit"`
	OffsetReset            *string  `json:"offset_reset"`
	ClientID               *string  `json:"client_id"`
	InstanceID             *string  `json:"instance_id"`
	Assignors              []string `json:"assignors"`
	Protocol               *string  `json:"protocol"`
}

type CommitOffset struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	Metadata  string `json:"metadata"`
}

// Args is the union of every operation's arguments.
type Args struct {
	ID              string            `json:"id"`
	Topic           string            `json:"topic"`
	Topics          []string          `json:"topics"`
	Pattern         string            `json:"pattern"`
	Group           string            `json:"group"`
	Partition       int32             `json:"partition"`
	Records         []Record          `json:"records"`
	Compression     string            `json:"compression"`
	Acks            *int              `json:"acks"`
	Idempotent      bool              `json:"idempotent"`
	MaxRequestBytes int               `json:"max_request_bytes"`
	Each            bool              `json:"each"`
	LingerMs        *int              `json:"linger_ms"`
	Partitions      json.RawMessage   `json:"partitions"`
	Offset          json.RawMessage   `json:"offset"`
	Count           *int              `json:"count"`
	Config          ConsumerConfig    `json:"config"`
	TimeoutMs       *int              `json:"timeout_ms"`
	Timestamp       int64             `json:"timestamp"`
	Replication     *int16            `json:"replication"`
	Configs         map[string]string `json:"configs"`
	TopicID         string            `json:"topic_id"`
	Offsets         []CommitOffset    `json:"offsets"`
	Assign          [][]any           `json:"assign"`
	TransactionalID string            `json:"transactional_id"`
	Values          []string          `json:"values"`
	Kind            string            `json:"kind"`
	Name            string            `json:"name"`
	Set             map[string]any    `json:"set"`
	Delete          []string          `json:"delete"`
	Append          map[string]string `json:"append"`
	Subtract        map[string]string `json:"subtract"`
	User            string            `json:"user"`
	Mechanism       string            `json:"mechanism"`
	Iterations      int32             `json:"iterations"`
	Password        *string           `json:"password"`
	Replicas        []int32           `json:"replicas"`
	Source          string            `json:"source"`
	Target          string            `json:"target"`
}

func (a *Args) partitionList() []int32 {
	var list []int32
	if err := json.Unmarshal(a.Partitions, &list); err != nil {
		panic(err)
	}
	return list
}

func (a *Args) partitionCount() int32 {
	count := int32(1)
	if len(a.Partitions) > 0 {
		if err := json.Unmarshal(a.Partitions, &count); err != nil {
			panic(err)
		}
	}
	return count
}

// offsetOr gives the numeric offset, or what the map says for a named one.
func (a *Args) offsetOr(named map[string]int64) int64 {
	if len(a.Offset) == 0 {
		return named["earliest"]
	}
	var number int64
	if json.Unmarshal(a.Offset, &number) == nil {
		return number
	}
	var name string
	if err := json.Unmarshal(a.Offset, &name); err != nil {
		panic(err)
	}
	return named[name]
}

func (a *Args) timeoutMs(otherwise int) int {
	if a.TimeoutMs != nil {
		return *a.TimeoutMs
	}
	return otherwise
}

func (a *Args) acks() int {
	if a.Acks != nil {
		return *a.Acks
	}
	return -1
}

type Failure struct {
	Code *int   `json:"code"`
	Name string `json:"name"`
	Text string `json:"text"`
}

type Sent struct {
	Partition int32    `json:"partition"`
	Offset    int64    `json:"offset"`
	Timestamp int64    `json:"timestamp"`
	Error     *Failure `json:"error,omitempty"`
}

type Polled struct {
	Records    []Record `json:"records"`
	Assignment [][]any  `json:"assignment"`
}

func describe(err error) *Failure {
	failure := &Failure{Name: fmt.Sprintf("%T", err), Text: err.Error()}
	var ofSarama sarama.KError
	var ofFranz *kerr.Error
	switch {
	case errors.As(err, &ofSarama):
		code := int(ofSarama)
		failure.Code = &code
	case errors.As(err, &ofFranz):
		code := int(ofFranz.Code)
		failure.Code, failure.Name = &code, ofFranz.Message
	}
	return failure
}

// driver is one client library; an operation it lacks is answered with an error.
type driver interface {
	do(op string, args *Args) (any, error)
}

func main() {
	var client driver
	switch os.Args[1] {
	case "sarama":
		client = newSarama(os.Args[2])
	case "franz":
		client = newFranz(os.Args[2])
	case "sarama-transactions":
		client = newSaramaTransactions(os.Args[2])
	case "franz-transactions":
		client = newFranzTransactions(os.Args[2])
	case "sarama-secured":
		client = newSaramaSecured(os.Args[2])
	case "franz-secured":
		client = newFranzSecured(os.Args[2])
	case "history":
		runHistory(os.Args[2:])
		return
	default:
		panic("unknown client " + os.Args[1])
	}
	lines := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := bufio.NewWriter(os.Stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var request struct {
			Op   string `json:"op"`
			Args Args   `json:"args"`
		}
		answer := map[string]any{}
		if err := json.Unmarshal(line, &request); err != nil {
			answer["error"] = describe(err)
		} else if value, err := client.do(request.Op, &request.Args); err != nil {
			answer["error"] = describe(err)
		} else {
			answer["ok"] = value
		}
		text, err := json.Marshal(answer)
		if err != nil {
			panic(err)
		}
		out.Write(append(text, '\n'))
		out.Flush()
	}
}
