"""A driver: copies a topic to another on a cluster, and says what it has done line by line.

python copy_topic.py MASTER BOOTSTRAP SOURCE TARGET CHECKPOINT once|continuous
"""

import sys

from runnel.pipelines.progress import Progress, Stage, StreamBatch
from runnel.pipelines.queries import run_queries
from runnel.pipelines.session import spark_session

SETTINGS = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.driver.memory": "512m",
    # An executor that was killed costs a try; its task must get another one.
    "spark.task.maxFailures": "8",
}


class Teller:
    """A view for the test that started this."""

    def stage_began(self, stage: Stage) -> None: ...

    def stage_advanced(self, stage: Stage) -> None: ...

    def stage_ended(self, stage: Stage) -> None: ...

    def batch_ended(self, batch: StreamBatch) -> None:
        print(f"batch {batch.batch_id} {batch.records}", flush=True)

    def said(self, text: str) -> None: ...

    def ended(self, is_fine: bool) -> None: ...


def main(master: str, bootstrap: str, source: str, target: str, checkpoint: str, how: str) -> None:
    with spark_session("copy", master=master, settings=SETTINGS) as session:
        print("started", flush=True)
        frame = (
            session.readStream.format("runnel")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("subscribe", source)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", 500)
            .load()
        )
        writer = (
            frame.select("key", "value")
            .writeStream.format("runnel")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("topic", target)
            .option("checkpointLocation", checkpoint)
            .queryName("copy")
        )
        is_once = how == "once"
        trigger = {"availableNow": True} if is_once else {"processingTime": "200 milliseconds"}
        ran = run_queries([writer.trigger(**trigger).start()], Progress(Teller()))
        print(f"copied {ran.records}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
