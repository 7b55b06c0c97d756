"""Starts Spark's Java process, with known noise filtered from its standard error."""

import os
import re
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from runnel.pipelines.errors import NoSpark

if TYPE_CHECKING:
    from pyspark import SparkConf

# Messages of Java and Spark that no setting suppresses.
_NOISE = re.compile(
    rb"WARNING: Using incubator modules"
    rb"|WARNING: package sun\.security\.action not in java\.base"
    rb"|WARNING: A (terminally deprecated|restricted) method in "
    rb"|WARNING: (sun\.misc\.Unsafe|java\.lang\.System)::"
    rb"|WARNING: Please consider reporting this to the maintainers of "
    rb"|WARNING: Use --(sun-misc-unsafe-memory-access|enable-native-access)="
    rb"|WARNING: (Restricted|Terminally deprecated) methods? (in|will be blocked)"
    rb"|Setting default log level to "
    rb"|To adjust logging level use sc\.setLogLevel"
    rb"|Using Spark's (default|repl) log4j profile"
    rb"|Picked up (_JAVA_OPTIONS|JAVA_TOOL_OPTIONS)"
)
_STDERR = 2
_LAST_LINES = 8


class StderrFilter:
    """Forwards the standard error of a process line by line, without known noise."""

    def __init__(self) -> None:
        self.last_lines: deque[bytes] = deque(maxlen=_LAST_LINES)
        reading, self.write_end = os.pipe()
        self._thread = threading.Thread(
            target=self._forward, args=(os.fdopen(reading, "rb"),), name="spark's messages", daemon=True
        )
        self._thread.start()

    def close(self, timeout_s: float | None = None) -> None:
        """Close our write end; with a timeout, wait for the end of the stream."""
        os.close(self.write_end)
        if timeout_s is not None:
            self._thread.join(timeout_s)

    def last_message(self) -> str:
        """The last relevant line; Spark's launcher prints errors about the output of Java."""
        lines = [line for line in self.last_lines if line.strip() and b"/spark-class: line " not in line]
        return lines[-1].decode(errors="replace").strip() if lines else ""

    def _forward(self, lines: BinaryIO) -> None:
        with lines:
            for line in lines:
                if _NOISE.match(line):
                    continue
                self.last_lines.append(line)
                try:
                    os.write(_STDERR, line)
                except OSError:
                    # Our standard error is closed; keep draining the pipe.
                    continue


def start_gateway(conf: "SparkConf") -> Any:
    """Start Spark's Java process, which exits with this process."""
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    stderr = StderrFilter()
    try:
        gateway = cast(Any, launch_gateway)(conf, popen_kwargs={"stderr": stderr.write_end})
    except (PySparkRuntimeError, OSError) as error:
        stderr.close(timeout_s=5)
        raise NoSpark(f"Spark's Java process did not start: {stderr.last_message() or error}") from error
    except BaseException:
        stderr.close()
        raise
    stderr.close()
    return gateway
