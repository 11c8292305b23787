"""Kafka's own command line tools, by their names and options, over Ottla's client: `kafka-topics.sh --list …`.

People call them inside a container (`docker exec`), and scripts read what they print, so options and output are
Kafka's. They work with any Kafka cluster. The `ottla` command does more, and is easier to use.
"""
