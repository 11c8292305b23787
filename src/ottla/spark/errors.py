"""What can be wrong before a Spark job begins, said in one line."""


class SparkSetupError(Exception):
    """Spark cannot be used as asked: Java, Maven or PySpark is missing, or an option makes no sense."""
