"""An archive without a stream around it: batches that tests hand over themselves, as Spark would."""

from collections.abc import Sequence

from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from runnel.pipelines.archive.batches import BatchArchiver
from runnel.pipelines.archive.job import known_topics
from runnel.pipelines.broker import BrokerView
from runnel.pipelines.source.options import read_options
from runnel.pipelines.source.resolving import subscribed


class Steps:
    """One archive's batches."""

    def __init__(self, session: SparkSession, catalog: Catalog, bootstrap: str, **options: str) -> None:
        self._session = session
        self._read = {"kafka.bootstrap.servers": bootstrap, **options}
        if "subscribePattern" not in options:
            self._read.setdefault("subscribe", "orders")
        self._catalog = catalog
        self.archiver = self.new_archiver()

    def new_archiver(self) -> BatchArchiver:
        """What a restarted driver begins with."""
        source = read_options(self._read)
        with BrokerView(source.bootstrap_servers) as broker:
            known = known_topics(subscribed(broker, source.subscription))
        return BatchArchiver(self._catalog, "archive", source, known)

    def batch(self, batch_id: int, *, query: str = "q", archiver: BatchArchiver | None = None) -> None:
        """Hand over all that is in the topics now, as the batch of this number."""
        plain: Sequence[str] = ("valueFormat", "valueSchema")
        options = {name: value for name, value in self._read.items() if name not in plain}
        frame = self._session.read.format("runnel").options(**options).load()
        context = self._session.sparkContext
        context.setLocalProperty("sql.streaming.queryId", query)
        try:
            (archiver or self.archiver)(frame, batch_id)
        finally:
            context.setLocalProperty("sql.streaming.queryId", "")
