// Package ottlatest gives a Go test a Kafka broker of its own: Ottla, in a child process.
//
//	func TestBilling(t *testing.T) {
//		broker := ottlatest.Start(t)
//		broker.CreateTopic("orders", 3, nil)
//		runBilling(broker.Bootstrap)
//		broker.WaitUntilCaughtUp("billing", "orders", 5*time.Second)
//	}
//
// It needs Python with ottla (pip install ottla). The command is "ottla", or what $OTTLA_COMMAND says.
package ottlatest

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

const startTimeout = 30 * time.Second

// An Option says something about the broker.
type Option func(*[]string)

// WithArgs adds options of the command "ottla serve", such as "--set", "num.partitions=3".
func WithArgs(args ...string) Option {
	return func(all *[]string) { *all = append(*all, args...) }
}

// WithTopic makes a topic before Start returns.
func WithTopic(name string, partitions int) Option {
	return WithArgs("--topic", fmt.Sprintf("%s:%d", name, partitions))
}

// WithTLS serves TLS; Security has the certificate authority that clients need.
func WithTLS() Option { return WithArgs("--tls") }

// WithUser has clients log in, with PLAIN or SCRAM.
func WithUser(name, password string) Option { return WithArgs("--user", name+":"+password) }

// Security is what clients of a broker with TLS or users need.
type Security struct {
	Protocol string `json:"protocol"`
	CAFile   string `json:"ca_file"`
}

// Broker is a running broker. Its methods end the test with t.Fatal if something goes wrong.
type Broker struct {
	// Bootstrap is the address for clients.
	Bootstrap string `json:"bootstrap"`
	// Control is the URL of the HTTP endpoint that the methods below use.
	Control  string    `json:"control"`
	Security *Security `json:"security"`

	t       testing.TB
	command *exec.Cmd
	once    *sync.Once
}

// Start runs a broker in memory that is stopped when the test ends.
func Start(t testing.TB, options ...Option) *Broker {
	t.Helper()
	broker, err := Run(options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Stop)
	return broker.For(t)
}

// Run runs a broker for TestMain; call Stop in the end. Its methods panic unless it is bound to a test with For.
func Run(options ...Option) (*Broker, error) {
	words := strings.Fields(os.Getenv("OTTLA_COMMAND"))
	if len(words) == 0 {
		words = []string{"ottla"}
	}
	args := append(words[1:], "serve", "--ephemeral", "--port", "0", "--control", "0", "--json", "--no-console",
		"--preset", "test", "--exit-with-parent", "--log-level", "WARNING")
	for _, option := range options {
		option(&args)
	}
	command := exec.Command(words[0], args...)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	stdout, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("ottlatest: cannot run %q: %w (pip install ottla, or set OTTLA_COMMAND)", words[0], err)
	}
	broker := &Broker{command: command, once: &sync.Once{}}
	line := make(chan []byte, 1)
	go func() {
		read, _ := bufio.NewReader(stdout).ReadBytes('\n')
		line <- read
		_, _ = io.Copy(io.Discard, stdout)
	}()
	select {
	case read := <-line:
		if err := json.Unmarshal(read, broker); err != nil || broker.Bootstrap == "" {
			broker.Stop()
			return nil, fmt.Errorf("ottlatest: the broker did not start: %s", strings.TrimSpace(stderr.String()))
		}
	case <-time.After(startTimeout):
		broker.Stop()
		return nil, errors.New("ottlatest: the broker was not ready within 30 s")
	}
	return broker, nil
}

// For is the same broker for another test.
func (b *Broker) For(t testing.TB) *Broker {
	bound := *b
	bound.t = t
	return &bound
}

// Stop ends the process. It is safe to call it twice.
func (b *Broker) Stop() {
	b.once.Do(func() {
		_ = b.command.Process.Signal(os.Interrupt)
		done := make(chan struct{})
		go func() { _ = b.command.Wait(); close(done) }()
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			_ = b.command.Process.Kill()
			<-done
		}
	})
}

// A Record as it is stored. Key and Value are nil where there is none.
type Record struct {
	Partition int
	Offset    int64
	Timestamp int64
	Key       []byte
	Value     []byte
}

// UnmarshalJSON reads a record as the control endpoint writes it.
func (r *Record) UnmarshalJSON(data []byte) error {
	var line struct {
		Partition         int
		Offset, Timestamp int64
		Key, Value        json.RawMessage
	}
	if err := json.Unmarshal(data, &line); err != nil {
		return err
	}
	key, err := bytesOf(line.Key)
	if err != nil {
		return err
	}
	value, err := bytesOf(line.Value)
	*r = Record{line.Partition, line.Offset, line.Timestamp, key, value}
	return err
}

func bytesOf(raw json.RawMessage) ([]byte, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return []byte(text), nil
	}
	var coded struct{ Base64 string }
	if err := json.Unmarshal(raw, &coded); err != nil {
		return nil, err
	}
	return base64.StdEncoding.DecodeString(coded.Base64)
}

// CreateTopic makes a topic; config may be nil.
func (b *Broker) CreateTopic(name string, partitions int, config map[string]string) {
	b.helper()
	b.ask("POST", "/topics/"+url.PathEscape(name), map[string]any{"partitions": partitions, "config": config}, nil)
}

// Append writes records without a client.
func (b *Broker) Append(topic string, values ...string) {
	b.helper()
	b.ask("POST", "/topics/"+url.PathEscape(topic)+"/records", map[string]any{"records": values}, nil)
}

// Records returns what a read_committed consumer sees in a topic.
func (b *Broker) Records(topic string) []Record {
	b.helper()
	var found []Record
	b.ask("GET", "/topics/"+url.PathEscape(topic)+"/records", nil, &found)
	return found
}

// WaitForRecords blocks until a topic has at least count records, and returns all of them.
func (b *Broker) WaitForRecords(topic string, count int, timeout time.Duration) []Record {
	b.helper()
	var found []Record
	options := map[string]any{"count": count, "timeout": timeout.Seconds()}
	b.ask("POST", "/topics/"+url.PathEscape(topic)+"/wait", options, &found)
	return found
}

// WaitUntilStable blocks until a group has these many members and all have their partitions.
func (b *Broker) WaitUntilStable(group string, members int, timeout time.Duration) {
	b.helper()
	options := map[string]any{"members": members, "timeout": timeout.Seconds()}
	b.ask("POST", "/groups/"+url.PathEscape(group)+"/wait_until_stable", options, nil)
}

// WaitUntilCaughtUp blocks until a group has read and committed all of a topic.
func (b *Broker) WaitUntilCaughtUp(group, topic string, timeout time.Duration) {
	b.helper()
	options := map[string]any{"of": topic, "timeout": timeout.Seconds()}
	b.ask("POST", "/groups/"+url.PathEscape(group)+"/wait_until_caught_up", options, nil)
}

// WaitForRequest blocks until a client sent such a request, by Kafka's name of the API: "Fetch".
func (b *Broker) WaitForRequest(api string, timeout time.Duration) {
	b.helper()
	b.ask("POST", "/requests/wait", map[string]any{"api": api, "timeout": timeout.Seconds()}, nil)
}

// Lag is how many records of a topic a group has still to read.
func (b *Broker) Lag(group, topic string) int {
	b.helper()
	var found struct{ Lag int }
	b.ask("GET", "/groups/"+url.PathEscape(group)+"/lag?of="+url.QueryEscape(topic), nil, &found)
	return found.Lag
}

// A Fault of the broker; see docs/faults.md for the kinds and their options.
type Fault struct {
	ID     int
	Kind   string
	Fired  int
	broker *Broker
}

// AddFault makes the broker misbehave: AddFault("error", map[string]any{"api": "Produce", "error": "NOT_LEADER_OR_FOLLOWER"}).
func (b *Broker) AddFault(kind string, options map[string]any) *Fault {
	b.helper()
	body := map[string]any{"kind": kind}
	for name, value := range options {
		body[name] = value
	}
	fault := &Fault{broker: b}
	b.ask("POST", "/faults", body, fault)
	return fault
}

// Refresh looks how often the fault has struck.
func (f *Fault) Refresh() *Fault {
	f.broker.helper()
	f.broker.ask("GET", fmt.Sprintf("/faults/%d", f.ID), nil, f)
	return f
}

// Remove ends the fault.
func (f *Fault) Remove() {
	f.broker.helper()
	f.broker.ask("DELETE", fmt.Sprintf("/faults/%d", f.ID), nil, nil)
}

// ClearFaults ends all faults.
func (b *Broker) ClearFaults() { b.helper(); b.ask("DELETE", "/faults", nil, nil) }

// Advance moves the broker's clock; what falls due happens before it returns.
func (b *Broker) Advance(duration time.Duration) {
	b.helper()
	b.ask("POST", "/clock/advance", map[string]any{"ms": duration.Milliseconds()}, nil)
}

// Reset removes all topics, groups and faults.
func (b *Broker) Reset() { b.helper(); b.ask("POST", "/reset", nil, nil) }

// A Snapshot of the broker's state.
type Snapshot int

// Snapshot keeps the state now.
func (b *Broker) Snapshot() Snapshot {
	b.helper()
	var made struct{ Snapshot int }
	b.ask("POST", "/snapshots", nil, &made)
	return Snapshot(made.Snapshot)
}

// Restore goes back to a snapshot; clients connect again.
func (b *Broker) Restore(state Snapshot) {
	b.helper()
	b.ask("POST", fmt.Sprintf("/snapshots/%d/restore", state), nil, nil)
}

// Down stops the broker but keeps its port; Up starts it again.
func (b *Broker) Down() { b.helper(); b.ask("POST", "/broker/down", nil, nil) }

// Up starts the broker again.
func (b *Broker) Up() { b.helper(); b.ask("POST", "/broker/up", nil, nil) }

func (b *Broker) helper() {
	if b.t != nil {
		b.t.Helper()
	}
}

func (b *Broker) ask(method, path string, body, into any) {
	b.helper()
	if err := b.try(method, path, body, into); err != nil {
		if b.t == nil {
			panic(err)
		}
		b.t.Fatal(err)
	}
}

func (b *Broker) try(method, path string, body, into any) error {
	var content io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return err
		}
		content = bytes.NewReader(encoded)
	}
	request, err := http.NewRequest(method, b.Control+path, content)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("ottlatest: %w", err)
	}
	defer response.Body.Close()
	read, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode >= 400 {
		var refused struct{ Error string }
		_ = json.Unmarshal(read, &refused)
		return fmt.Errorf("ottlatest: %s %s: %s", method, path, refused.Error)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(read, into)
}
