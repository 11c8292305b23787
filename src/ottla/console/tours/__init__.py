"""Guided tours through Kafka on a live cluster: each step does something, says what, and shows it."""
