"""Creates Spark sessions."""

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
from runnel.pipelines.failures import explained, is_spark_error
from runnel.pipelines.jvm import JAVA_MIN, find_java
from runnel.pipelines.master import check_master, is_local, is_on_loopback

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[*]"

_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    # The format that Iceberg and current versions of Hive read.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Stopping a query waits for its tasks.
    "spark.sql.streaming.stopTimeout": "60s",
}
_LOOPBACK_SETTINGS = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
# Spark's default of 200 tasks per shuffle costs seconds on one machine.
_LOCAL_SETTINGS = {"spark.sql.shuffle.partitions": str(max(2, os.cpu_count() or 2))}
_JAVA_OPTIONS = "--enable-native-access=ALL-UNNAMED"
_PYTHON_CHECK = "import sys, runnel.pipelines; print(*sys.version_info[:2], sep='.')"
_STOP_S = 90


def _ignore(text: str) -> None:
    """Discards messages."""


@contextmanager
def spark_session(
    name: str,
    *,
    master: str = LOCAL,
    settings: Mapping[str, str] | None = None,
    on_message: Callable[[str], None] = _ignore,
) -> Iterator["SparkSession"]:
    """A session that is stopped at the end; `settings` override the defaults."""
    session = start_session(name, master=master, settings=settings, on_message=on_message)
    try:
        yield session
    finally:
        stop_session(session)


def start_session(
    name: str,
    *,
    master: str = LOCAL,
    settings: Mapping[str, str] | None = None,
    on_message: Callable[[str], None] = _ignore,
) -> "SparkSession":
    """A session, which the caller stops. Messages for the user are passed to `on_message`."""
    _check_installed()
    check_master(master)
    chosen = {
        **_SETTINGS,
        **(_LOCAL_SETTINGS if is_local(master) else {}),
        **(_LOOPBACK_SETTINGS if is_on_loopback(master) else {}),
        **(settings or {}),
    }
    _choose_python(chosen)
    _choose_java(on_message)
    with as_file(files("runnel.pipelines") / "log4j2.properties") as quiet:
        options = f"{_JAVA_OPTIONS} -Dlog4j2.configurationFile={quiet.as_uri()}"
        chosen["spark.driver.extraJavaOptions"] = (
            f"{options} {chosen.get('spark.driver.extraJavaOptions', '')}".strip()
        )
        return _started(name, master, chosen)


def stop_session(session: "SparkSession") -> None:
    """Stop a session, even if its thread was interrupted during a call to Java."""
    # Another thread has its own connection; ours may still wait for a response.
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
    """Workers must run the same Python as this process, with runnel installed."""
    python = chosen.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON")
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if python is None:
        # Spark would use the python3 of the PATH.
        os.environ["PYSPARK_PYTHON"] = sys.executable
    elif python != sys.executable:
        _check_python(python)


def _check_python(python: str) -> None:
    ours = f"{sys.version_info[0]}.{sys.version_info[1]}"
    advice = f"PYSPARK_PYTHON (or spark.pyspark.python) must be a Python {ours} with runnel[spark] installed"
    try:
        result = subprocess.run([python, "-c", _PYTHON_CHECK], capture_output=True, text=True, timeout=60)
    except OSError as error:
        raise NoSpark(
            f"{python} cannot be started for Spark's workers: {error.strerror}; {advice}"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise NoSpark(f"{python} is not responding; {advice}") from error
    version = result.stdout.strip()
    if result.returncode != 0:
        reason = (result.stderr.strip().splitlines() or [f"exit status {result.returncode}"])[-1]
        raise NoSpark(f"Spark's workers cannot run with {python}: {reason}; {advice}")
    if version != ours:
        raise NoSpark(f"{python} is Python {version}, but this process runs {ours}; {advice}")


def _choose_java(on_message: Callable[[str], None]) -> None:
    java = find_java()
    if java.rejected:
        on_message(f"Spark needs Java {JAVA_MIN} or newer: using {java.home}, not {', '.join(java.rejected)}")
    # The launcher reads it from the environment only.
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
                # Java may be running already for an earlier session.
                running = SparkContext._gateway
                SparkContext(conf=conf, gateway=running or start_gateway(conf))
            builder = SparkSession.builder
            for key, value in chosen.items():
                builder = builder.config(key, value)
            return builder.getOrCreate()
        except Exception as error:
            if is_spark_error(error):
                raise NoSpark(f"Spark does not start: {explained(error)}") from error
            raise


def _silence_queries() -> None:
    """Disable Spark's JSON log line for every failed query; the error is raised as well."""
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Restore our SIGINT handler, which Spark replaces."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
