"""Archives topics to a table: a program for spark-submit. See submit-kubernetes.sh and submit-yarn.sh beside it."""

import argparse

import ottla.spark

parser = argparse.ArgumentParser()
parser.add_argument("topics", nargs="+")
parser.add_argument("--bootstrap", required=True)
parser.add_argument("--out", required=True)
parser.add_argument("--format", default="parquet")
arguments = parser.parse_args()

# The master and all settings are those of spark-submit. Ottla's own source needs no jar.
spark = ottla.spark.session(app_name="archive", connector=False)
done = ottla.spark.archive(
    arguments.topics,
    arguments.out,
    bootstrap=arguments.bootstrap,
    format=arguments.format,
    source="ottla",
    spark=spark,
)
print(f"archived {done.records} records to {arguments.out}")
spark.stop()
