"""Runs a program and sends it a signal before, during or after a chosen call of its Kafka client.

python saboteur.py before:Consumer.commit:2:SIGKILL program.py arguments…
"""

import os
import runpy
import signal
import sys
from typing import Any

import confluent_kafka


def sabotage(order: str) -> None:
    """Replace the client class by one that injects the signal."""
    when, method, number, name = order.split(":")
    class_name, method_name = method.split(".")
    original = getattr(confluent_kafka, class_name)
    calls = 0

    def call(self: Any, *arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        is_moment = calls == int(number)
        if is_moment and when == "amid":
            # The first step of a commit is a flush.
            self.flush()
        if is_moment and when != "after":
            os.kill(os.getpid(), signal.Signals[name])
        result = getattr(original, method_name)(self, *arguments, **options)
        if is_moment and when == "after":
            os.kill(os.getpid(), signal.Signals[name])
        return result

    setattr(confluent_kafka, class_name, type(class_name, (original,), {method_name: call}))


if __name__ == "__main__":
    sabotage(sys.argv[1])
    sys.argv = sys.argv[2:]
    runpy.run_path(sys.argv[0], run_name="__main__")
