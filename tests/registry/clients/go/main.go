// Registers, reads and compares schemas with one of Go's registry clients, and prints what came of it.
// usage: main confluent|franz URL HEX…    (values that another client wrote, to be decoded)
package main

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/confluentinc/confluent-kafka-go/v2/schemaregistry"
	"github.com/confluentinc/confluent-kafka-go/v2/schemaregistry/rest"
	"github.com/twmb/franz-go/pkg/sr"
)

const order = `{"type":"record","name":"Order","namespace":"shop","fields":[{"name":"id","type":"int"}]}`
const renamed = `{"type":"record","name":"Order","namespace":"shop","fields":[{"name":"number","type":"int"}]}`
const jsonOrder = `{"type":"object","properties":{"id":{"type":"integer"}},"additionalProperties":false}`
const proto = "syntax = \"proto3\";\npackage shop;\n\nmessage Order {\n  int32 id = 1;\n}\n"

// Order is what the schemas describe.
type Order struct {
	ID int `avro:"id" json:"id"`
}

type report map[string]any

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func bytesOf(text string) []byte {
	data, err := hex.DecodeString(text)
	must(err)
	return data
}

func code(err error) any {
	var refused *rest.Error
	if errors.As(err, &refused) {
		return refused.Code
	}
	return fmt.Sprint(err)
}

func confluent(url string, given []string) report {
	client, err := schemaregistry.NewClient(schemaregistry.NewConfig(url))
	must(err)
	found := report{}
	id, err := client.Register("go-avro-value", schemaregistry.SchemaInfo{Schema: order}, false)
	must(err)
	found["id"] = id
	_, err = client.Register("go-avro-value", schemaregistry.SchemaInfo{Schema: renamed}, false)
	found["incompatible"] = code(err)
	_, err = client.GetLatestSchemaMetadata("nothing")
	found["missing"] = code(err)
	compatible, err := client.TestCompatibility("go-avro-value", -1, schemaregistry.SchemaInfo{Schema: renamed})
	must(err)
	found["compatible"] = compatible
	found["versions"], err = client.GetAllVersions("go-avro-value")
	must(err)
	_, err = client.UpdateConfig("go-avro-value", schemaregistry.ServerConfig{CompatibilityUpdate: schemaregistry.Full})
	must(err)
	config, err := client.GetConfig("go-avro-value", true)
	must(err)
	found["config"] = config.CompatibilityLevel.String()

	_, err = client.Register("go-json-value", schemaregistry.SchemaInfo{Schema: jsonOrder, SchemaType: "JSON"}, false)
	must(err)
	found["values"] = []string{}
	schema, err := client.GetBySubjectAndID("", int(binary.BigEndian.Uint32(bytesOf(given[1])[1:5])))
	must(err)
	found["read"] = schema.Schema
	found["deleted"], err = client.DeleteSubject("go-json-value", false)
	must(err)
	return found
}

func franz(url string, given []string) report {
	client, err := sr.NewClient(sr.URLs(url))
	must(err)
	ctx, found := context.Background(), report{}
	made, err := client.CreateSchema(ctx, "franz-avro-value", sr.Schema{Schema: order})
	must(err)
	found["id"], found["version"] = made.ID, made.Version
	_, err = client.CreateSchema(ctx, "franz-avro-value", sr.Schema{Schema: renamed})
	var refused *sr.ResponseError
	if errors.As(err, &refused) {
		found["incompatible"] = []int{refused.StatusCode, refused.ErrorCode}
	}
	_, err = client.SchemaByVersion(ctx, "nothing", -1)
	if errors.As(err, &refused) {
		found["missing"] = []int{refused.StatusCode, refused.ErrorCode}
	}
	result, err := client.CheckCompatibility(ctx, "franz-avro-value", -1, sr.Schema{Schema: renamed})
	must(err)
	found["compatible"], found["messages"] = result.Is, len(result.Messages)
	uses, err := client.SchemaUsagesByID(ctx, made.ID)
	must(err)
	found["subjects"] = len(uses)
	text, err := client.SchemaTextByID(ctx, made.ID)
	must(err)
	found["text"] = text
	_, err = client.CreateSchema(ctx, "franz-proto-value", sr.Schema{Schema: proto, Type: sr.TypeProtobuf})
	must(err)
	latest, err := client.SchemaByVersion(ctx, "franz-proto-value", -1)
	must(err)
	found["proto"] = latest.Schema.Schema == proto
	set := client.SetCompatibility(ctx, sr.SetCompatibility{Level: sr.CompatFull}, "franz-avro-value")
	must(set[0].Err)
	level := client.Compatibility(ctx, "franz-avro-value")
	must(level[0].Err)
	found["config"] = level[0].Level.String()

	var codec sr.Serde
	codec.Register(made.ID, Order{}, sr.EncodeFn(json.Marshal), sr.DecodeFn(json.Unmarshal))
	value, err := codec.Encode(Order{ID: 7})
	must(err)
	found["values"] = []string{hex.EncodeToString(value)}
	id, _, err := codec.DecodeID(bytesOf(given[0]))
	must(err)
	schema, err := client.SchemaByID(ctx, id)
	must(err)
	found["read"] = schema.Schema
	versions, err := client.DeleteSubject(ctx, "franz-proto-value", sr.SoftDelete)
	must(err)
	found["deleted"] = versions
	return found
}

func main() {
	use := map[string]func(string, []string) report{"confluent": confluent, "franz": franz}[os.Args[1]]
	text, err := json.Marshal(use(os.Args[2], os.Args[3:]))
	must(err)
	fmt.Println(string(text))
}
