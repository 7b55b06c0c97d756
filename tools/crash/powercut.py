"""Power cuts on an ext4 volume: what was not synced is lost, and must not include anything acknowledged."""

import random
import time
from pathlib import Path

from tools.broker_process import BrokerProcess
from tools.crash.rounds import Crash, Outcome, Progress, no_progress, run_rounds
from tools.crash.volumes import Ext4, ext4


def cut(volume: Ext4) -> Crash:
    """A crash that takes the page cache with it."""

    def crash(broker: BrokerProcess, rng: random.Random) -> None:
        cut_power(volume, broker)
        # The broker keeps running on the dead disk for a moment, and must not acknowledge anything.
        time.sleep(rng.uniform(0.0, 0.3))
        restore(volume, broker)
        if rng.random() < 1 / 3:
            broker.launch()
            time.sleep(rng.uniform(0.02, 0.4))
            cut_power(volume, broker)
            restore(volume, broker)

    return crash


def cut_power(volume: Ext4, broker: BrokerProcess) -> None:
    """Cut the power between two system calls of the broker.

    An fdatasync in progress while ext4 is shut down may report success for bytes that are lost (seen with a
    bare program in one of thirty cuts), whereas a machine without power reports nothing at all.
    """
    with broker.held():
        volume.cut_power()


def restore(volume: Ext4, broker: BrokerProcess) -> None:
    broker.kill()
    volume.restore_power()


def power_cuts(folder: Path, rounds: int, seed: int = 1, progress: Progress = no_progress) -> Outcome:
    with ext4(folder) as volume:
        broker = BrokerProcess(volume.mountpoint / "data", log_path=folder / "broker.log")
        try:
            return run_rounds(broker, rounds, cut(volume), seed, progress)
        finally:
            broker.kill()
