"""Full collections do not grow with the number of partitions."""

import subprocess
import sys

SCRIPT = """
import gc
from runnel.server.process import bound_garbage_collection

bound_garbage_collection()
largest = 0

def watch(phase, info):
    global largest
    if phase == "start" and info["generation"] == 2:
        largest = max(largest, len(gc.get_objects()))

gc.callbacks.append(watch)
kept = [[number] for number in range(500_000)]
gc.collect()
print(largest, gc.get_freeze_count())
"""


def test_what_survived_a_full_collection_is_not_looked_at_again() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], check=True, capture_output=True, text=True)
    largest, frozen = map(int, done.stdout.split())
    assert frozen >= 500_000
    assert largest < 150_000
