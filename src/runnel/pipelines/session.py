"""The one place that builds a Spark session."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import as_file, files
from typing import TYPE_CHECKING

from runnel.pipelines.errors import NoSpark
from runnel.pipelines.failures import explained, is_of_spark
from runnel.pipelines.jvm import JAVA_MIN, find_java
from runnel.pipelines.master import check_master, is_local, is_on_loopback

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[*]"

_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    # What Iceberg and all but old versions of Hive read.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # A query that is stopped should end its tasks, not leave them to write on.
    "spark.sql.streaming.stopTimeout": "60s",
}
_LOOPBACK_SETTINGS = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
# 200 tasks per shuffle, Spark's default, cost seconds on one machine and win nothing.
_LOCAL_SETTINGS = {"spark.sql.shuffle.partitions": str(max(2, os.cpu_count() or 2))}
_JAVA_OPTIONS = "--enable-native-access=ALL-UNNAMED"
_PYTHON_CHECK = "import sys, runnel.pipelines; print(*sys.version_info[:2], sep='.')"
_STOP_S = 90


def _nobody(text: str) -> None:
    """Discards messages."""


@contextmanager
def spark_session(
    name: str,
    *,
    master: str = LOCAL,
    settings: Mapping[str, str] | None = None,
    say: Callable[[str], None] = _nobody,
) -> Iterator["SparkSession"]:
    """A session that is stopped at the end; its settings can be overruled one by one."""
    session = start_session(name, master=master, settings=settings, say=say)
    try:
        yield session
    finally:
        stop_session(session)


def start_session(
    name: str,
    *,
    master: str = LOCAL,
    settings: Mapping[str, str] | None = None,
    say: Callable[[str], None] = _nobody,
) -> "SparkSession":
    """A session, which its caller stops. What its owner should know about it is said to `say`."""
    _check_installed()
    check_master(master)
    chosen = {
        **_SETTINGS,
        **(_LOCAL_SETTINGS if is_local(master) else {}),
        **(_LOOPBACK_SETTINGS if is_on_loopback(master) else {}),
        **(settings or {}),
    }
    _choose_python(chosen)
    _choose_java(say)
    with as_file(files("runnel.pipelines") / "log4j2.properties") as quiet:
        options = f"{_JAVA_OPTIONS} -Dlog4j2.configurationFile={quiet.as_uri()}"
        chosen["spark.driver.extraJavaOptions"] = (
            f"{options} {chosen.get('spark.driver.extraJavaOptions', '')}".strip()
        )
        return _started(name, master, chosen)


def stop_session(session: "SparkSession") -> None:
    """Stop a session, also after its thread was interrupted in the middle of a call to Java."""
    # Another thread has its own connection; ours may still wait for a response that is no longer needed.
    thread = threading.Thread(target=session.stop, name="stop spark", daemon=True)
    thread.start()
    thread.join(_STOP_S)


def _check_installed() -> None:
    try:
        import pyarrow
        import pyspark.sql  # noqa: F401
    except ImportError as error:
        raise NoSpark(f"pipelines run on Spark: pip install 'runnel[spark]' ({error})") from error
    del pyarrow


def _choose_python(chosen: Mapping[str, str]) -> None:
    """Workers must run the Python that this process runs, with runnel in it."""
    python = chosen.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON")
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if python is None:
        # Spark would take whatever python3 the PATH has.
        os.environ["PYSPARK_PYTHON"] = sys.executable
    elif python != sys.executable:
        _check_python(python)


def _check_python(python: str) -> None:
    ours = f"{sys.version_info[0]}.{sys.version_info[1]}"
    advice = f"PYSPARK_PYTHON (or spark.pyspark.python) must name a Python {ours} that has runnel[spark]"
    try:
        said = subprocess.run([python, "-c", _PYTHON_CHECK], capture_output=True, text=True, timeout=60)
    except OSError as error:
        raise NoSpark(
            f"{python} cannot be started for Spark's workers: {error.strerror}; {advice}"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise NoSpark(f"{python} does not answer; {advice}") from error
    version = said.stdout.strip()
    if said.returncode != 0:
        reason = (said.stderr.strip().splitlines() or [f"it ends with {said.returncode}"])[-1]
        raise NoSpark(f"Spark's workers cannot run with {python}: {reason}; {advice}")
    if version != ours:
        raise NoSpark(f"{python} is Python {version}, and this process runs {ours}; {advice}")


def _choose_java(say: Callable[[str], None]) -> None:
    java = find_java()
    if java.passed_over:
        say(f"Spark needs Java {JAVA_MIN} or newer: using {java.home}, not {', '.join(java.passed_over)}")
    # The launcher takes it from the environment alone.
    os.environ["JAVA_HOME"] = str(java.home)


def _started(name: str, master: str, chosen: Mapping[str, str]) -> "SparkSession":
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    from runnel.pipelines.gateway import start_gateway

    _silence_queries()
    conf = SparkConf().setAppName(name).setMaster(master).setAll(list(chosen.items()))
    with _signals_kept():
        try:
            if SparkContext._active_spark_context is None:
                # A second session of this process finds Java running.
                running = SparkContext._gateway
                SparkContext(conf=conf, gateway=running or start_gateway(conf))
            builder = SparkSession.builder
            for key, value in chosen.items():
                builder = builder.config(key, value)
            return builder.getOrCreate()
        except Exception as error:
            if is_of_spark(error):
                raise NoSpark(f"Spark does not start: {explained(error)}") from error
            raise


def _silence_queries() -> None:
    """Spark writes a line of JSON for every query that it refuses, besides raising it."""
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Spark puts its own answer to Ctrl-C in place of ours; put ours back."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
