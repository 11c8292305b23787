"""Protobuf: the text of .proto files and file descriptors, into each other, and the rules of Confluent's registry."""
