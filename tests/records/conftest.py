"""Import the other implementations once, as one of them warns about itself and warnings are errors here."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import aiokafka.record  # noqa: F401
    import kafka.record  # noqa: F401
