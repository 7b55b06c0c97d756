"""What Spark loads for the format "runnel": topics as tables to read from and write to."""

from pyspark.sql.datasource import DataSource


class RunnelDataSource(DataSource):
    """Topics of a broker that speaks Kafka's protocol."""

    @classmethod
    def name(cls) -> str:
        return "runnel"
