"""Stack traces of Spark, and the error message extracted from each."""

import pytest

from runnel.pipelines.errors import BadCheckpoint, DataLost, NoSpark, PipelineError
from runnel.pipelines.failures import explained, explained_text, is_spark_error

WORKER = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted due to stage \
failure: Task 0 in stage 3.0 failed 1 times, most recent failure: Lost task 0.0 in stage 3.0 (TID 3) (host \
executor driver): org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/venv/lib/python3.11/site-packages/pyspark/worker.py", line 3000, in main
    process()
    ~~~~~~~^^
  File "{file}", line 12, in enrich
    raise {raised}
{raised}

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:1)
\tat java.base/java.lang.Thread.run(Thread.java:840)

Driver stacktrace: SQLSTATE: XXKST
=== Streaming Query ===
"""


def test_an_error_of_pipelines_is_raised_unchanged():
    text = WORKER.format(
        file="/x/runnel/pipelines/source/fetching.py",
        raised="runnel.pipelines.errors.DataLost: offsets 3 to 5\nof orders-0 are gone",
    )
    error = explained_text(text)
    assert (type(error), str(error)) == (DataLost, "offsets 3 to 5\nof orders-0 are gone")


def test_an_error_of_the_client_keeps_its_message():
    text = WORKER.format(file="/x.py", raised="runnel.client.errors.Unreachable: no broker at 127.0.0.1:1")
    assert str(explained_text(text)) == "no broker at 127.0.0.1:1"


def test_an_error_of_pipelines_takes_precedence_over_its_cause():
    cause = WORKER.format(file="/x.py", raised="runnel.client.errors.NoBroker: none")
    text = cause + WORKER.format(file="/x.py", raised="runnel.pipelines.errors.DataLost: gone")
    assert type(explained_text(text)) is DataLost


def test_an_error_in_the_owners_code_names_the_place():
    error = explained_text(WORKER.format(file="/home/me/steps.py", raised="ValueError: bad price: -1"))
    assert str(error) == "ValueError: bad price: -1 (/home/me/steps.py, line 12, in enrich)"


def test_the_innermost_error_of_ours_wins_over_what_came_of_it():
    inner = WORKER.format(file="/x.py", raised="runnel.pipelines.errors.BadOption: no such option")
    outer = WORKER.format(file="/y.py", raised="RuntimeError: the worker failed")
    assert str(explained_text(inner + outer)) == "no such option"


@pytest.mark.parametrize(
    ("text", "kind", "sentence"),
    [
        ("x: java.lang.OutOfMemoryError: Java heap space", NoSpark, "run out of memory"),
        (
            "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: runnel. Make sure the provider name is "
            "correct and the package is properly registered and compatible with your Spark version. "
            "SQLSTATE: 42K02",
            NoSpark,
            "set PYSPARK_PYTHON to its Python",
        ),
        (
            "There are [1] sources in the checkpoint offsets and now there are [2] sources",
            BadCheckpoint,
            "another query",
        ),
        (
            WORKER.format(
                file="/s.py", raised="pyspark.errors.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] x"
            ),
            NoSpark,
            "a different version of Python",
        ),
    ],
)
def test_well_known_failures_say_what_to_do(text, kind, sentence):
    error = explained_text(text)
    assert type(error) is kind and sentence in str(error)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "[TABLE_OR_VIEW_NOT_FOUND] The table `x` cannot be found. SQLSTATE: 42P01; line 1 pos 14\n'P",
            "[TABLE_OR_VIEW_NOT_FOUND] The table `x` cannot be found",
        ),
        (
            "An error occurred while calling o45.start.\n"
            ": org.apache.spark.SparkException: java.io.IOException: No space left\n\tat x",
            "No space left",
        ),
        ("", "Spark failed without an error message"),
    ],
)
def test_other_failures_are_cut_to_their_first_sentence(text, sentence):
    assert str(explained_text(text)) == sentence


def test_what_is_human_already_stays_as_it_is():
    error = DataLost("gone")
    assert explained(error) is error
    assert isinstance(explained(ValueError("x")), PipelineError)


def test_what_comes_from_spark():
    from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]
    from pyspark.errors import AnalysisException

    assert is_spark_error(AnalysisException("x")) and is_spark_error(Py4JNetworkError("x"))
    assert not is_spark_error(ValueError("x"))
