"""Ottla, Kafka's little sister: a broker in pure Python that speaks the Apache Kafka wire protocol."""

__version__ = "0.1.0"
