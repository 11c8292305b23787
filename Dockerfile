# A broker in a container that can replace apache/kafka, confluentinc/cp-kafka or bitnami/kafka:
#   docker build -t ottla .
#   docker run -p 9092:9092 -v ottla-data:/var/lib/kafka/data ottla
# Clients that do not run on this host need its name:
#   docker run -p 9092:9092 -e KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://kafka.example.com:9092 ottla
# Any key of the broker can be set like this; docs/image.md says more.

# A release names these by their digests (scripts/image-bases), so that nobody can change them under a tag.
ARG BUILD_BASE=python:3.13
ARG BASE=python:3.13-slim

# This stage has what image-root needs besides Python (strip); nothing else of it gets into the image.
FROM ${BUILD_BASE} AS build
WORKDIR /build
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
COPY configs ./configs
COPY image ./image
COPY scripts/image-root scripts/install-locked ./scripts/
COPY scripts/locks ./scripts/locks
RUN scripts/image-root /image

FROM ${BASE}
LABEL org.opencontainers.image.title="ottla" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.source="https://github.com/ottla/ottla"
COPY --from=build /image /
# Start scripts of test libraries are copied into these folders, and change files in them.
RUN useradd --uid 1000 --no-create-home --home-dir /var/lib/kafka/data --shell /usr/sbin/nologin appuser \
 && chown -R appuser:root /var/lib/kafka /etc/kafka /etc/confluent /bitnami \
 && chmod -R ug+w /var/lib/kafka /etc/kafka /etc/confluent /bitnami
USER appuser
ENV PATH=/opt/kafka/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
VOLUME ["/etc/kafka/secrets", "/var/lib/kafka/data", "/mnt/shared/config"]
EXPOSE 9092
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=5s --start-period=10s \
  CMD ["kafka-cluster.sh", "cluster-id", "--bootstrap-server", "localhost:9092"]
CMD ["/etc/kafka/docker/run"]
