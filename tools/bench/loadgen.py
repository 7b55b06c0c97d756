"""The load generator: a C program (loadgen.c), compiled once into the cache."""

import array
import hashlib
import json
import subprocess
import tempfile
from ctypes.util import find_library
from dataclasses import dataclass, field
from pathlib import Path

from tools.bench.percentiles import percentiles_us
from tools.fetch.cache import cached
from tools.fetch.programs import Unavailable, find

SOURCES = ("loadgen.c", "loadgen_encoding.h", "loadgen_http.h", "loadgen_tls.h")
PURPOSE = "compile the load generator of the benchmark"
TLS_PURPOSE = "measure brokers over TLS"


def build() -> Path:
    """The program; raises Unavailable if there is no C compiler."""
    compiler, here = find("cc", PURPOSE), Path(__file__).parent
    digest = hashlib.sha256(b"".join((here / name).read_bytes() for name in SOURCES)).hexdigest()[:12]

    def fill(folder: Path) -> None:
        command = [compiler, "-O2", "-o", str(folder / "loadgen"), str(here / SOURCES[0]), "-ldl"]
        subprocess.run(command, check=True)

    return cached(f"loadgen-{digest}", fill) / "loadgen"


class LoadFailed(Exception):
    """The program ended with an error, or the broker answered with errors."""


@dataclass(slots=True)
class Load:
    """What one run of the generator did, and how long each request or record took."""

    requests: int
    bytes: int
    errors: int
    empty: int
    seconds: float
    latencies_ns: "array.array[int]" = field(repr=False)
    arrivals_ns: "array.array[int]" = field(repr=False)

    @property
    def requests_per_s(self) -> float:
        return self.requests / self.seconds

    @property
    def mb_per_s(self) -> float:
        return self.bytes / self.seconds / 1e6

    @property
    def latency_us(self) -> dict[str, float]:
        return percentiles_us(self.latencies_ns)

    @property
    def arrival_us(self) -> dict[str, float]:
        return percentiles_us(self.arrivals_ns)


def libssl() -> Path:
    """OpenSSL's library, which the program loads for TLS: that of this Python, or the system's."""
    import ssl  # noqa: F401  # To be mapped.

    for line in Path("/proc/self/maps").read_text().splitlines():
        path = Path(line.split(maxsplit=5)[-1])
        if path.name.startswith("libssl"):
            return path
    if found := find_library("ssl"):
        return Path(found)
    raise Unavailable(f"OpenSSL (libssl.so) is not installed; it is needed to {TLS_PURPOSE}")


def run(program: Path, verb: str, port: int, **options: object) -> Load:
    """One load (produce, fetch, latency, connect or http); the options are those of the program."""
    with tempfile.TemporaryDirectory(prefix="runnel-loadgen-") as folder:
        files = {name: Path(folder) / name for name in ("latencies", "arrivals")}
        pairs = [f"{key}={value}" for key, value in {"port": port, **options, **files}.items()]
        done = subprocess.run([str(program), verb, *pairs], capture_output=True, text=True, check=False)
        if done.returncode:
            raise LoadFailed(f"loadgen {verb} {pairs}: {done.stderr}")
        samples = {name: _samples(path) for name, path in files.items()}
    load = Load(**json.loads(done.stdout), latencies_ns=samples["latencies"], arrivals_ns=samples["arrivals"])
    if load.errors:
        raise LoadFailed(f"loadgen {verb} {pairs}: {load.errors} errors: {done.stderr}")
    return load


def _samples(path: Path) -> "array.array[int]":
    values = array.array("q")
    values.frombytes(path.read_bytes())
    return values
