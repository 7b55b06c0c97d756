"""Requests of real clients, recorded in every run and never stored."""

import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tools.fuzz.relay import Relay
from tools.fuzz.samples import TOPIC

ROOT = Path(__file__).resolve().parent.parent.parent
CLIENTS = ("confluent", "kafka_python", "aiokafka")
TIMEOUT_S = 120
# Fetches and heartbeats repeat themselves; some of each are as good as all.
KEPT_OF_EACH_MAX = 12
_API_AND_VERSION = struct.Struct(">4xhh")


@dataclass(slots=True)
class Recordings:
    """Requests of real clients, and which clients failed."""

    frames: list[bytes] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)


def record(relay: Relay, clients: Iterable[str] = CLIENTS) -> Recordings:
    """Let every client produce, consume in a group and administer through the relay."""
    recordings = Recordings()
    for client in clients:
        relay.frames.clear()
        complaint = run(client, relay.address)
        if complaint:
            recordings.failures.append(f"{client}: {complaint}")
        kept = some_of_each(relay.frames)
        recordings.frames += kept
        recordings.counts[client] = len(kept)
    relay.is_recording = False
    relay.frames.clear()
    return recordings


def run(client: str, bootstrap: str) -> str:
    """One client's session, in a process of its own so that nothing of it stays; what went wrong."""
    command = [sys.executable, "-m", f"tools.fuzz.clients.{client}", bootstrap, TOPIC]
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"not done after {TIMEOUT_S} s"
    lines = done.stderr.strip().splitlines() or [f"ended with {done.returncode}"]
    return lines[-1] if done.returncode else ""


def some_of_each(frames: list[bytes]) -> list[bytes]:
    """Up to this many frames of each API and version."""
    seen: Counter[tuple[int, ...]] = Counter()
    kept = []
    for frame in frames:
        kind = _API_AND_VERSION.unpack_from(frame)
        seen[kind] += 1
        if seen[kind] <= KEPT_OF_EACH_MAX:
            kept.append(frame)
    return kept
