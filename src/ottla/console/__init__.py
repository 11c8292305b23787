"""The console: a web page that shows a Kafka cluster, and the JSON API that it uses.

It uses the Kafka protocol through `ottla.client`, so the same console shows Ottla and any other Kafka
cluster. `api.py` declares every operation once; the routes and the OpenAPI description are derived from it.
"""
