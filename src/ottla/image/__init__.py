"""The container image: what it does with the settings and scripts that people wrote for Kafka's images."""
