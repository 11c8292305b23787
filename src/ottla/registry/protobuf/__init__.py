"""Protobuf: converts between .proto text and file descriptors, and has the rules of Confluent's registry."""
