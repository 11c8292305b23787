"""A schema registry that speaks the REST API of Confluent's Schema Registry and keeps its state in a `_schemas` topic.

The parts, in reading order: `names` and `entities` are the vocabulary; `avro/`, `json_schema/` and `protobuf/` read one
format each, with the interface in `formats`; `compatibility` compares versions; `records` is the record format of
the topic and `state` the fold over it; `operations/` turns requests into records; `rest/` is the HTTP API as plain
functions; `registry` runs it all on a log; `server` serves it over HTTP. Only `server` depends on an HTTP library, and
nothing imports this package unless a registry is used.
"""
