"""A driver: Spark's own Kafka connector and ours against one broker; prints what each saw, as JSON.

python both_connectors.py JARS BOOTSTRAP FOLDER
"""

import json
import sys
from typing import TYPE_CHECKING

from runnel.pipelines.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORDS = 1000
COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]


def read(session: "SparkSession", source: str, bootstrap: str, topic: str) -> "DataFrame":
    reader = session.read.format(source).option("kafka.bootstrap.servers", bootstrap)
    reader = reader.option("subscribe", topic).option("includeHeaders", "true")
    return (
        reader.option("startingOffsets", "earliest").option("endingOffsets", "latest").load().select(COLUMNS)
    )


def main(jars: str, bootstrap: str, folder: str) -> None:
    with spark_session("connectors", master="local[2]", settings={"spark.jars": jars}) as session:
        rows = session.range(RECORDS).selectExpr(
            "cast(id as string) as key",
            "if(id % 10 = 0, null, repeat(cast(id as string), 3)) as value",
            "array(named_struct('key', 'h', 'value', cast(cast(id as string) as binary))) as headers",
        )
        kafka = {"kafka.bootstrap.servers": bootstrap}
        rows.write.format("kafka").options(**kafka).option("topic", "batch").option(
            "includeHeaders", "true"
        ).save()
        stream = session.readStream.format("kafka").options(**kafka).option("subscribe", "batch")
        query = (
            stream.option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", 400)
            .load()
            .writeStream.format("kafka")
            .options(**kafka)
            .option("topic", "streamed")
            .option("checkpointLocation", folder)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        theirs, ours = (read(session, source, bootstrap, "batch") for source in ("kafka", "runnel"))
        streamed = read(session, "kafka", bootstrap, "streamed")
        seen = {
            "rows": theirs.count(),
            "tombstones": theirs.where("value is null").count(),
            "headers": theirs.where("headers[0].value = key and headers[0].key = 'h'").count(),
            "only theirs": theirs.exceptAll(ours).count(),
            "only ours": ours.exceptAll(theirs).count(),
            "types": [theirs.dtypes, ours.dtypes],
            "streamed": streamed.select("key", "value").exceptAll(theirs.select("key", "value")).count(),
            "streamed rows": streamed.count(),
            "batches": len([one for one in query.recentProgress if one["numInputRows"]]),
        }
        print(json.dumps(seen))


if __name__ == "__main__":
    main(*sys.argv[1:])
