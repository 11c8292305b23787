"""Guided tours through Kafka on a live cluster: each step does something, explains it, and shows the result."""
