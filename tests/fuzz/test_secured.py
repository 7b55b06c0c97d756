"""A little of what `make fuzz SECURED=1` does at length, and proof that it detects violations."""

import asyncio
import ssl
from collections import Counter
from random import Random

import pytest

from runnel.testing import Broker
from tools.certificates import CaFolder
from tools.fuzz.attack import Attack
from tools.fuzz.samples import sample_frames
from tools.fuzz.secured.run import KINDS, fuzz_secured, secured_target
from tools.fuzz.secured.sasl import broken_token, has_same_credentials
from tools.fuzz.secured.state import changed
from tools.fuzz.secured.tls_records import TlsRecords, broken_records

EXPECTED = {
    "authenticated": {"answered", "refused"},
    "sasl": {"authenticated", "denied", "refused"},
    "tls": {"refused with an alert"},
    "unpermitted": {"answered", "refused"},
}


def test_a_secured_broker_withstands_all_kinds(tmp_path) -> None:
    with secured_target(tmp_path) as target:
        for kind in KINDS:
            outcome = fuzz_secured(target, kind, 400, 11)
            assert outcome.complaints == [], kind
            assert outcome.outcomes.total() == 400
            assert outcome.outcomes.keys() >= EXPECTED[kind]


def test_a_response_with_a_secret_is_detected() -> None:
    with Broker() as broker, broker.client() as client:
        client.create_topic("vault-topic", partitions=1)
        frames = [each for each in sample_frames(bytes(16), is_harmless=False) if each[4:6] == b"\0\3"]
        attack = Attack(broker.port, iter(frames * 2), 1, secrets=(b"127.0.0.1",))
        asyncio.run(attack.run())
    assert attack.leaks.total() > 0


def test_a_server_without_tls_is_detected(tmp_path) -> None:
    ca = CaFolder(tmp_path)

    async def scenario() -> TlsRecords:
        async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"in clear text")
            await reader.read(1)
            writer.close()

        async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
            context = ssl.create_default_context(cafile=str(ca.certificate))
            assault = TlsRecords(server.sockets[0].getsockname()[1], context, 20, 1)
            await assault.run(4)
            return assault

    assert asyncio.run(scenario()).violations


def test_changes_are_listed() -> None:
    before: dict[str, object] = {"metadata records": ["a"], "logs": {"t-0": "1"}, "groups": []}
    assert changed(before, before) == []
    after: dict[str, object] = {"metadata records": ["a", "b"], "logs": {"t-0": "2"}, "groups": ["g"]}
    assert [each.partition(":")[0] for each in changed(before, after)] == [
        "new in metadata records",
        "logs changed",
        "new in groups",
    ]


@pytest.mark.parametrize(
    ("mechanism", "genuine", "arrived", "expected"),
    [
        ("PLAIN", b"\0a\0secret", b"\0a\0secret", True),
        ("PLAIN", b"\0a\0secret", b"a\0a\0secret", True),
        ("PLAIN", b"\0a\0secret", b"\0a\0secrets", False),
        ("PLAIN", b"\0a\0secret", b"\0a\0secret\0", False),
        ("SCRAM-SHA-256", b"c=biws,r=xy,p=AAAA", b"c=biws,r=xz,p=AAAA", False),
        ("SCRAM-SHA-256", b"n,,n=a,r=x", b"n,,n=b,r=x", False),
        ("OAUTHBEARER", b"n,,\1auth=Bearer a.b.AA\1\1", b"n,,\1auth=Bearer a.b.AA\1x=y\1\1", True),
        ("OAUTHBEARER", b"n,,\1auth=Bearer a.b.AA\1\1", b"n,,\1auth=Bearer a.c.AA\1\1", False),
        ("OAUTHBEARER", b"n,,\1auth=Bearer a.b.AA\1\1", b"n,,\1auth=Bearer x\1auth=Bearer a.b.AA\1\1", True),
        ("OAUTHBEARER", b"n,,\1auth=Bearer a.b.AA\1\1", b"n,,\1auth=Bearer a.b.CA\1\1", False),
    ],
)
def test_which_tokens_are_equivalent(mechanism: str, genuine: bytes, arrived: bytes, expected: bool) -> None:
    assert has_same_credentials(mechanism, genuine, arrived) is expected


def test_tokens_and_records_are_broken_in_many_ways() -> None:
    chance = Random(1)
    tokens = Counter(broken_token(chance, b"\0alice\0secret") for _ in range(500))
    assert len(tokens) > 300
    record = b"\x16\x03\x01\x00\x20" + bytes(range(32))
    records = Counter(broken_records(chance, record) for _ in range(500))
    assert len(records) > 300
