"""The driver: copies a topic to another, exactly once, until it is killed.

python -m tools.crash.spark.job MASTER BOOTSTRAP SOURCE TARGET CHECKPOINT
"""

import sys

from runnel.pipelines.session import spark_session

SETTINGS = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.driver.memory": "512m",
    # Whoever is killed costs a task one of its tries.
    "spark.task.maxFailures": "20",
}
TASKS = 3
RECORDS_PER_BATCH = 5000
TRANSACTION_TIMEOUT_MS = 60_000


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
        # Mixed anew, so that every task writes to every partition.
        query = (
            rows.select("key", "value")
            .repartition(TASKS)
            .writeStream.format("runnel")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("topic", target)
            .option("transactionTimeoutMs", TRANSACTION_TIMEOUT_MS)
            .option("checkpointLocation", checkpoint)
            .trigger(processingTime="300 milliseconds")
            .start()
        )
        query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
