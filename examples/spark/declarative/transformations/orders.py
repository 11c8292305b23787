"""A topic as a streaming table, a view of it, and a topic that gets what the table gets."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

import ottla.spark

CLUSTER = {"kafka.bootstrap.servers": "127.0.0.1:9092"}
spark = SparkSession.active()
ottla.spark.register(spark)


@dp.table
def orders() -> DataFrame:
    """Grows with the topic: each run reads what is new."""
    records = spark.readStream.format("ottla").options(**CLUSTER, subscribe="orders", startingOffsets="earliest").load()
    return records.selectExpr(
        "cast(key as string) as customer", "cast(value as string) as body", "partition", "offset", "timestamp"
    )


@dp.materialized_view
def by_customer() -> DataFrame:
    """Computed from the whole table in each run."""
    return spark.read.table("orders").groupBy("customer").count()


dp.create_sink("copy", "ottla", {**CLUSTER, "topic": "orders-copy"})


@dp.append_flow(target="copy")
def copies() -> DataFrame:
    return spark.readStream.table("orders").selectExpr("customer as key", "body as value")
