"""Spark on Ottla and on any Kafka cluster, through PySpark: `pip install "ottla[spark]"`.

`session()` gives a Spark session that knows the official connector (`format("kafka")`) and Ottla's own source and sink
(`format("ottla")`); `register()` adds the latter to a session that is there already. Importing this imports no Spark.
"""

from ottla.spark.errors import SparkSetupError
from ottla.spark.jars import connector_jars
from ottla.spark.sessions import register, session

__all__ = ["SparkSetupError", "connector_jars", "register", "session"]
