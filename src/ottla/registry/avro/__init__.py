"""Avro: parses schemas, prints them as Apache Avro's Java library does, and checks whether one can read another."""
