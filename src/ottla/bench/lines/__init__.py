"""The lines of the benchmark. Importing this package fills the table; the order here is the order of a run."""

from ottla.bench.lines import (  # noqa: F401  # isort: skip
    produce,
    fetch,
    requests,
    librdkafka,
    groups,
    transactions,
    startup,
    testing,
    security,
    multibroker,
    scale,
    flat,
    workers,
    mixed,
    spark,
)
