#!/usr/bin/env bash
# Archives topics with Spark on Kubernetes:
#   IMAGE=registry.example/spark-ottla:1 MASTER=k8s://https://kubernetes.default.svc \
#     submit-kubernetes.sh orders --bootstrap kafka:9092 --out /data/archive --format delta
# The image is Spark's own with `pip install 'ottla[spark,delta,iceberg]'` in it. The claim named in VOLUME is mounted
# at /data in the driver and in the executors, as all of them write to the table.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
volume=spark.kubernetes.driver.volumes.persistentVolumeClaim.data
exec spark-submit \
  --master "${MASTER:?the address of the cluster: k8s://https://HOST:PORT}" \
  --deploy-mode "${DEPLOY_MODE:-cluster}" \
  --name ottla-archive \
  --conf spark.kubernetes.namespace="${NAMESPACE:-default}" \
  --conf spark.kubernetes.container.image="${IMAGE:-spark-ottla}" \
  --conf spark.kubernetes.authenticate.driver.serviceAccountName="${SERVICE_ACCOUNT:-spark}" \
  --conf $volume.options.claimName="${VOLUME:-data}" \
  --conf $volume.mount.path=/data \
  --conf ${volume/driver/executor}.options.claimName="${VOLUME:-data}" \
  --conf ${volume/driver/executor}.mount.path=/data \
  --conf spark.executor.instances="${EXECUTORS:-2}" \
  --conf spark.executor.memory="${MEMORY:-2g}" \
  --conf spark.ui.enabled=false \
  "${JOB:-$here/archive_job.py}" "$@"
