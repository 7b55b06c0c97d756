"""kcat: metadata, producing, consumer groups and offset lookup by timestamp."""

import json
import shutil
import subprocess

import pytest

KCAT = shutil.which("kcat") or shutil.which("kafkacat")

pytestmark = pytest.mark.skipif(KCAT is None, reason="kcat is not installed (Debian: apt install kcat)")


def kcat(bootstrap: str, *arguments: str, stdin: str = "") -> str:
    assert KCAT is not None
    done = subprocess.run(
        [KCAT, "-b", bootstrap, *arguments], input=stdin, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_kcat_lists_brokers_and_topics(bootstrap, topic) -> None:
    listed = json.loads(kcat(bootstrap, "-L", "-J", "-t", topic))
    assert [broker["name"] for broker in listed["brokers"]] == [bootstrap]
    assert [(entry["topic"], len(entry["partitions"])) for entry in listed["topics"]] == [(topic, 1)]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_kcat_produces_and_consumes_keys_and_headers(bootstrap, topic, codec) -> None:
    lines = "".join(f"k{number}:v{number}\n" for number in range(100))
    kcat(bootstrap, "-P", "-t", topic, "-K:", "-z", codec, "-H", "origin=shell", stdin=lines)
    output = kcat(bootstrap, "-C", "-t", topic, "-o", "beginning", "-e", "-q", "-f", "%k:%s %h\n")
    assert output.splitlines() == [f"k{number}:v{number} origin=shell" for number in range(100)]


def test_kcat_consumes_in_a_group_and_resumes(bootstrap, topic, group) -> None:
    kcat(bootstrap, "-P", "-t", topic, stdin="".join(f"{number}\n" for number in range(20)))
    properties = ["-X", "auto.offset.reset=earliest", "-q", "-G", group]
    assert kcat(bootstrap, "-c", "12", *properties, topic).split() == [str(n) for n in range(12)]
    assert kcat(bootstrap, "-c", "8", *properties, topic).split() == [str(n) for n in range(12, 20)]


def test_kcat_finds_offsets_by_timestamp(bootstrap, topic) -> None:
    kcat(bootstrap, "-P", "-t", topic, stdin="one\ntwo\n")
    assert "offset 0" in kcat(bootstrap, "-Q", "-t", f"{topic}:0:1")
