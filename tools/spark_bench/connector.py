"""The jars of Spark's Kafka connector, fetched once with Maven."""

from pathlib import Path

from tools.fetch import maven

VERSION = "4.2.0"
JARS = [
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", VERSION),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.1"),
    ("org.apache.commons", "commons-pool2", "2.12.0"),
]
PURPOSE = "compare with Spark's Kafka connector"


def connector_jars() -> list[Path]:
    """The value of `spark.jars` for the format "kafka"; raises Unavailable if they cannot be fetched."""
    # Not transitive: the connector depends on a version of its token provider that does not exist.
    folder = maven.jars(f"spark-connector-{VERSION}", JARS, PURPOSE, transitive=False)
    return [folder / f"{artifact}-{version}.jar" for _, artifact, version in JARS]
