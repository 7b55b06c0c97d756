"""The driver: copies a topic to another, exactly once, until it is killed.

python -m tools.crash.spark.copying_job MASTER BOOTSTRAP SOURCE TARGET CHECKPOINT
"""

import sys
import time

from pyspark.sql.functions import udf
from pyspark.sql.types import BinaryType

from runnel.pipelines.session import spark_session
from tools.crash.spark.run import EXECUTORS

SETTINGS = {
    **EXECUTORS,
    # Rows reach the sink slowly and in small batches, so that a task is in its transaction for long.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10",
}
ROW_PAUSE_S = 0.005
BATCH_BYTES = 4000
PADDING = b">" + b"x" * 3000
"""Makes rows so large that they do not wait for each other in the pipe between Java and Python."""
TASKS = 3
RECORDS_PER_BATCH = 1000
TRANSACTION_TIMEOUT_MS = 60_000


def slowed(value: bytes) -> bytes:
    """The same value, padded, after a pause."""
    time.sleep(ROW_PAUSE_S)
    return value + PADDING


def main(master: str, bootstrap: str, source: str, target: str, checkpoint: str) -> None:
    with spark_session("crash", master=master, settings=SETTINGS) as session:
        print("started", flush=True)
        rows = (
            session.readStream.format("runnel")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("subscribe", source)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", RECORDS_PER_BATCH)
            .load()
        )
        # Repartitioned, so that every task writes to every partition.
        query = (
            rows.repartition(TASKS)
            .select("key", udf(slowed, BinaryType(), useArrow=False)("value").alias("value"))
            .writeStream.format("runnel")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("topic", target)
            .option("kafka.batch.size", BATCH_BYTES)
            .option("transactionTimeoutMs", TRANSACTION_TIMEOUT_MS)
            .option("checkpointLocation", checkpoint)
            .trigger(processingTime="300 milliseconds")
            .start()
        )
        query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
