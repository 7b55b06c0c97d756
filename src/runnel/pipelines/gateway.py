"""Spark's Java process: started so that only what matters of its chatter reaches the terminal."""

import os
import re
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from runnel.pipelines.errors import NoSpark

if TYPE_CHECKING:
    from pyspark import SparkConf

# What Java and Spark print before any setting can silence them, and which the user cannot change.
_CHATTER = re.compile(
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


class Chatter:
    """What a process says on standard error, passed on to ours line by line without the known noise."""

    def __init__(self) -> None:
        self.last_lines: deque[bytes] = deque(maxlen=_LAST_LINES)
        reading, self.write_end = os.pipe()
        self._thread = threading.Thread(
            target=self._pass_on, args=(os.fdopen(reading, "rb"),), name="spark's messages", daemon=True
        )
        self._thread.start()

    def close(self, timeout_s: float | None = None) -> None:
        """We write no more; wait until the others have done so, too, where a time is given."""
        os.close(self.write_end)
        if timeout_s is not None:
            self._thread.join(timeout_s)

    def last_words(self) -> str:
        """The last line that says something; Spark's launcher stumbles over what Java printed before it."""
        said = [line for line in self.last_lines if line.strip() and b"/spark-class: line " not in line]
        return said[-1].decode(errors="replace").strip() if said else ""

    def _pass_on(self, lines: BinaryIO) -> None:
        with lines:
            for line in lines:
                if _CHATTER.match(line):
                    continue
                self.last_lines.append(line)
                try:
                    os.write(_STDERR, line)
                except OSError:
                    # The reader is closed; the process must be able to write all the same.
                    continue


def start_gateway(conf: "SparkConf") -> Any:
    """Start Java with Spark in it; it ends with this process, however that ends."""
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    chatter = Chatter()
    try:
        gateway = cast(Any, launch_gateway)(conf, popen_kwargs={"stderr": chatter.write_end})
    except (PySparkRuntimeError, OSError) as error:
        chatter.close(timeout_s=5)
        raise NoSpark(f"Spark's Java process did not start: {chatter.last_words() or error}") from error
    except BaseException:
        chatter.close()
        raise
    chatter.close()
    return gateway
