"""The container image: how it uses settings and scripts that were written for Kafka's images."""
