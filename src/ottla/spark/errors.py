"""Errors that are found before a Spark job begins, each in one line."""


class SparkSetupError(Exception):
    """Spark cannot be used as requested: Java, Maven or PySpark is missing, or an option is invalid."""
