#!/usr/bin/env bash
# Archives topics with Spark on YARN:
#   submit-yarn.sh orders --bootstrap kafka:9092 --out hdfs:///data/archive
# Ottla and its packages travel in an archive of a virtualenv, made once on a machine like those of the cluster:
#   python -m venv env && env/bin/pip install 'ottla[spark]' venv-pack && env/bin/venv-pack -p env -o ottla-env.tar.gz
# ENVIRONMENT= (empty) leaves it out, if Ottla is installed on every machine.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
environment=${ENVIRONMENT-ottla-env.tar.gz}
options=()
if [ -n "$environment" ]; then
  options=(
    --archives "$environment#env"
    --conf spark.yarn.appMasterEnv.PYSPARK_PYTHON=./env/bin/python
    --conf spark.executorEnv.PYSPARK_PYTHON=./env/bin/python
  )
fi
exec spark-submit \
  --master "${MASTER:-yarn}" \
  --deploy-mode "${DEPLOY_MODE:-cluster}" \
  --name ottla-archive \
  --conf spark.yarn.queue="${QUEUE:-default}" \
  --conf spark.executor.instances="${EXECUTORS:-2}" \
  --conf spark.executor.memory="${MEMORY:-2g}" \
  --conf spark.ui.enabled=false \
  ${options[@]+"${options[@]}"} \
  "$here/archive_job.py" "$@"
