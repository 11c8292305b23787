// The Go clients through every door; the operations are in test_security_clients. The configs of a call say which door:
// protocol, ca, certificate (PEM with the key in it), mechanism, user, password, token.
package main

import (
	"context"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const securedWait = 80 * time.Second

// tlsOf gives the TLS settings, nil for a door without TLS.
func tlsOf(settings map[string]string) (*tls.Config, error) {
	if settings["ca"] == "" {
		return nil, nil
	}
	authority, err := os.ReadFile(settings["ca"])
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "localhost"}
	if !config.RootCAs.AppendCertsFromPEM(authority) {
		return nil, errors.New("no certificate in " + settings["ca"])
	}
	if path := settings["certificate"]; path != "" {
		identity, err := tls.LoadX509KeyPair(path, path)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{identity}
	}
	return config, nil
}

type franzSecured struct{ bootstrap string }

func newFranzSecured(bootstrap string) driver { return &franzSecured{bootstrap} }

func (d *franzSecured) options(settings map[string]string) ([]kgo.Opt, error) {
	options := []kgo.Opt{kgo.SeedBrokers(d.bootstrap)}
	secure, err := tlsOf(settings)
	if err != nil {
		return nil, err
	}
	if secure != nil {
		options = append(options, kgo.DialTLSConfig(secure))
	}
	byPassword := scram.Auth{User: settings["user"], Pass: settings["password"]}
	switch settings["mechanism"] {
	case "":
	case "PLAIN":
		options = append(options, kgo.SASL(plain.Auth{User: settings["user"], Pass: settings["password"]}.AsMechanism()))
	case "SCRAM-SHA-256":
		options = append(options, kgo.SASL(byPassword.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		options = append(options, kgo.SASL(byPassword.AsSha512Mechanism()))
	case "OAUTHBEARER":
		options = append(options, kgo.SASL(oauth.Auth{Token: settings["token"]}.AsMechanism()))
	default:
		return nil, errors.New("unknown mechanism " + settings["mechanism"])
	}
	return options, nil
}

func (d *franzSecured) do(op string, a *Args) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), securedWait)
	defer cancel()
	options, err := d.options(a.Configs)
	if err != nil {
		return nil, err
	}
	switch op {
	case "ping":
		client, err := kgo.NewClient(append(options, kgo.RetryTimeout(time.Second))...)
		if err != nil {
			return nil, err
		}
		defer client.Close()
		return nil, client.Ping(ctx)
	case "round":
		return d.round(ctx, options, a)
	}
	return nil, fmt.Errorf("unknown operation %s", op)
}

// round writes the values and reads them back through a group.
func (d *franzSecured) round(ctx context.Context, options []kgo.Opt, a *Args) (any, error) {
	options = append(
		options, kgo.AllowAutoTopicCreation(), kgo.ConsumeTopics(a.Topic), kgo.ConsumerGroup(a.Group),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	for _, value := range a.Values {
		if err := client.ProduceSync(ctx, &kgo.Record{Topic: a.Topic, Value: []byte(value)}).FirstErr(); err != nil {
			return nil, err
		}
	}
	got := []string{}
	for len(got) < len(a.Values) {
		fetched := client.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		fetched.EachRecord(func(record *kgo.Record) { got = append(got, string(record.Value)) })
	}
	return got, client.CommitUncommittedOffsets(ctx)
}

type saramaSecured struct{ bootstrap []string }

func newSaramaSecured(bootstrap string) driver { return &saramaSecured{[]string{bootstrap}} }

type fixedToken string

func (t fixedToken) Token() (*sarama.AccessToken, error) {
	return &sarama.AccessToken{Token: string(t)}, nil
}

func (d *saramaSecured) config(settings map[string]string) (*sarama.Config, error) {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Producer.Return.Successes = true
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Metadata.Retry.Max = 10
	secure, err := tlsOf(settings)
	if err != nil {
		return nil, err
	}
	config.Net.TLS.Enable, config.Net.TLS.Config = secure != nil, secure
	if mechanism := settings["mechanism"]; mechanism != "" {
		config.Net.SASL.Enable = true
		config.Net.SASL.Mechanism = sarama.SASLMechanism(mechanism)
		config.Net.SASL.User, config.Net.SASL.Password = settings["user"], settings["password"]
		config.Net.SASL.TokenProvider = fixedToken(settings["token"])
		hashing := sha256.New
		if mechanism == "SCRAM-SHA-512" {
			hashing = sha512.New
		}
		config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{hashing: hashing} }
	}
	return config, nil
}

func (d *saramaSecured) do(op string, a *Args) (any, error) {
	config, err := d.config(a.Configs)
	if err != nil {
		return nil, err
	}
	switch op {
	case "ping":
		config.Metadata.Retry.Max = 0
		client, err := sarama.NewClient(d.bootstrap, config)
		if err != nil {
			return nil, err
		}
		return nil, client.Close()
	case "round":
		return d.round(config, a)
	}
	return nil, fmt.Errorf("unknown operation %s", op)
}

func (d *saramaSecured) round(config *sarama.Config, a *Args) (any, error) {
	client, err := sarama.NewClient(d.bootstrap, config)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	producer, err := sarama.NewSyncProducerFromClient(client)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	for _, value := range a.Values {
		message := &sarama.ProducerMessage{Topic: a.Topic, Value: sarama.StringEncoder(value)}
		if _, _, err := producer.SendMessage(message); err != nil {
			return nil, err
		}
	}
	group, err := sarama.NewConsumerGroup(d.bootstrap, a.Group, config)
	if err != nil {
		return nil, err
	}
	defer group.Close()
	ctx, cancel := context.WithTimeout(context.Background(), securedWait)
	defer cancel()
	reader := &securedReader{wanted: len(a.Values), enough: cancel, got: []string{}}
	for ctx.Err() == nil {
		if err := group.Consume(ctx, []string{a.Topic}, reader); err != nil && ctx.Err() == nil {
			return nil, err
		}
	}
	return reader.got, nil
}

// securedReader gathers values of the topic's only partition until there are as many as wanted.
type securedReader struct {
	wanted int
	enough func()
	got    []string
}

func (r *securedReader) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (r *securedReader) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (r *securedReader) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		r.got = append(r.got, string(message.Value))
		session.MarkMessage(message, "")
		if len(r.got) == r.wanted {
			session.Commit()
			r.enough()
			return nil
		}
	}
	return nil
}

// scramClient is the client's half of RFC 5802, which sarama leaves to its users.
type scramClient struct {
	hashing         func() hash.Hash
	password        string
	bare, nonce     string
	serverSignature []byte
	done            bool
}

func (c *scramClient) Begin(user, password, _ string) error {
	random := make([]byte, 18)
	if _, err := rand.Read(random); err != nil {
		return err
	}
	c.password, c.nonce = password, base64.RawStdEncoding.EncodeToString(random)
	c.bare = "n=" + strings.NewReplacer("=", "=3D", ",", "=2C").Replace(user) + ",r=" + c.nonce
	return nil
}

func (c *scramClient) Done() bool { return c.done }

func (c *scramClient) Step(challenge string) (string, error) {
	switch {
	case challenge == "":
		return "n,," + c.bare, nil
	case c.serverSignature == nil:
		return c.answer(challenge)
	}
	if challenge != "v="+base64.StdEncoding.EncodeToString(c.serverSignature) {
		return "", errors.New("the server does not know the password either: " + challenge)
	}
	c.done = true
	return "", nil
}

func (c *scramClient) answer(challenge string) (string, error) {
	found := map[string]string{}
	for _, part := range strings.Split(challenge, ",") {
		if name, value, ok := strings.Cut(part, "="); ok {
			found[name] = value
		}
	}
	salt, err := base64.StdEncoding.DecodeString(found["s"])
	if err != nil {
		return "", err
	}
	iterations, err := strconv.Atoi(found["i"])
	if err != nil || !strings.HasPrefix(found["r"], c.nonce) {
		return "", errors.New("not a challenge: " + challenge)
	}
	salted, err := pbkdf2.Key(c.hashing, c.password, salt, iterations, c.hashing().Size())
	if err != nil {
		return "", err
	}
	final := "c=biws,r=" + found["r"]
	proven := []byte(c.bare + "," + challenge + "," + final)
	clientKey := c.mac(salted, []byte("Client Key"))
	stored := c.hashing()
	stored.Write(clientKey)
	proof := c.mac(stored.Sum(nil), proven)
	for i := range proof {
		proof[i] ^= clientKey[i]
	}
	c.serverSignature = c.mac(c.mac(salted, []byte("Server Key")), proven)
	return final + ",p=" + base64.StdEncoding.EncodeToString(proof), nil
}

func (c *scramClient) mac(key, data []byte) []byte {
	mac := hmac.New(c.hashing, key)
	mac.Write(data)
	return mac.Sum(nil)
}
