"""Power cuts on an ext4 of its own: what was not synced is gone, and nothing acknowledged may be among it."""

import random
import time
from pathlib import Path

from tools.broker_process import BrokerProcess
from tools.crash.story import Crash, Note, Outcome, silent, tell
from tools.crash.volumes import Ext4, ext4


def cut(volume: Ext4) -> Crash:
    """A crash that takes the page cache with it."""

    def crash(broker: BrokerProcess, chance: random.Random) -> None:
        cut_power(volume, broker)
        # The broker lives on over a dead disk for a moment, in which it must acknowledge nothing.
        time.sleep(chance.uniform(0.0, 0.3))
        restore(volume, broker)
        if chance.random() < 1 / 3:
            broker.launch()
            time.sleep(chance.uniform(0.02, 0.4))
            cut_power(volume, broker)
            restore(volume, broker)

    return crash


def cut_power(volume: Ext4, broker: BrokerProcess) -> None:
    """Cut the power between two system calls of the broker.

    An fdatasync that is under way while ext4 is shut down may report success for bytes that are gone (a bare
    program shows it in one of thirty cuts), where a machine without power reports nothing at all.
    """
    with broker.held():
        volume.cut_power()


def restore(volume: Ext4, broker: BrokerProcess) -> None:
    broker.kill()
    volume.unmount()
    volume.mount()


def power_cuts(folder: Path, rounds: int, seed: int = 1, note: Note = silent) -> Outcome:
    with ext4(folder) as volume:
        broker = BrokerProcess(volume.mountpoint / "data", log_path=folder / "broker.log")
        try:
            return tell(broker, rounds, cut(volume), seed, note)
        finally:
            broker.kill()
