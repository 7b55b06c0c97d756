"""Common errors of users, each reported in one line."""

import pytest

from runnel.pipelines.errors import BrokerUnreachable, PipelineError, UnknownTopic
from runnel.pipelines.failures import explained
from runnel.pipelines.progress import Progress
from runnel.pipelines.queries import run_queries


def read(session, bootstrap: str, topic: str, **options: str):
    reader = session.read.format("runnel").option("kafka.bootstrap.servers", bootstrap)
    return reader.option("subscribe", topic).options(**options).load()


def stream(session, bootstrap: str, topic: str, checkpoint: str, **options: str) -> None:
    reader = session.readStream.format("runnel").option("kafka.bootstrap.servers", bootstrap)
    reader = reader.options(**options)
    writer = reader.option("subscribe", topic).load().writeStream.format("noop")
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    run_queries([query], Progress())


def reported(work) -> PipelineError:
    with pytest.raises(Exception) as raised:
        work()
    return explained(raised.value)


NO_BROKER = "no broker available at 127.0.0.1:1 (connection refused); start one with `runnel serve`"


def test_no_broker(spark, tmp_path):
    soon = {"fetchTimeoutMs": "300"}
    error = reported(lambda: read(spark, "127.0.0.1:1", "orders", **soon).count())
    assert (type(error), str(error)) == (BrokerUnreachable, NO_BROKER)
    error = reported(lambda: stream(spark, "127.0.0.1:1", "orders", str(tmp_path), **soon))
    assert (type(error), str(error)) == (BrokerUnreachable, NO_BROKER)
    rows = spark.sql("select 'x' as value").write.format("runnel").mode("append").option("topic", "orders")
    rows = rows.option("kafka.delivery.timeout.ms", "300")
    error = reported(rows.option("kafka.bootstrap.servers", "127.0.0.1:1").save)
    assert (type(error), str(error)) == (BrokerUnreachable, NO_BROKER)


def test_no_such_topic(spark, runnel_session, tmp_path):
    bootstrap = runnel_session.bootstrap_servers
    for work in (
        lambda: read(spark, bootstrap, "nowhere").count(),
        lambda: stream(spark, bootstrap, "nowhere", str(tmp_path)),
    ):
        error = reported(work)
        assert type(error) is UnknownTopic
        assert "topic 'nowhere' does not exist" in str(error) and "\n" not in str(error)


def test_a_misspelt_option_and_a_query_that_makes_no_sense(spark, runnel_session, capfd):
    error = reported(lambda: read(spark, runnel_session.bootstrap_servers, "orders", startingOffset="latest"))
    assert "did you mean 'startingOffsets'?" in str(error)
    error = reported(lambda: spark.sql("select x from missing_table"))
    assert str(error).startswith(
        "[TABLE_OR_VIEW_NOT_FOUND] The table or view `missing_table` cannot be found"
    )
    # All that there is to say has been raised.
    assert capfd.readouterr().err == ""
