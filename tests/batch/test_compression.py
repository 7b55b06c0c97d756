"""Codecs: levels, framing, and protection against decompression bombs."""

import gzip
import tracemalloc
from contextlib import suppress

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.batch.compression import XERIAL_HEADER, Compression, compress, decompress
from runnel.batch.errors import BatchInflatesTooFar, CorruptBatch
from tests.batch.strategies import compressions

PACKED = [codec for codec in Compression if codec is not Compression.NONE]
TEXT = b"a man, a plan, a canal, panama. " * 4_000


@given(st.binary(max_size=2000), compressions)
def test_round_trip(data, codec):
    assert bytes(decompress(compress(data, codec), codec)) == data


@pytest.mark.parametrize("codec", PACKED)
def test_large_data_round_trips(codec):
    assert bytes(decompress(compress(TEXT, codec), codec)) == TEXT


@pytest.mark.parametrize(
    ("codec", "levels"), [("GZIP", (-1, 1, 9)), ("LZ4", (1, 9, 17)), ("ZSTD", (-131072, -1, 3, 22))]
)
def test_every_level_that_kafka_allows_works(codec, levels):
    for level in levels:
        packed = compress(TEXT, Compression[codec], level)
        assert bytes(decompress(packed, Compression[codec])) == TEXT


def test_raw_snappy_is_read_and_the_java_frame_is_written():
    assert bytes(decompress(bytes(cramjam.snappy.compress_raw(TEXT)), Compression.SNAPPY)) == TEXT
    assert bytes(compress(TEXT, Compression.SNAPPY))[:16] == XERIAL_HEADER


def test_lz4_blocks_are_independent_as_java_requires():
    assert bytes(compress(TEXT, Compression.LZ4))[4] & 0x20


def test_two_gzip_members_are_read_as_one():
    assert bytes(decompress(gzip.compress(b"ab") + gzip.compress(b"cd"), Compression.GZIP)) == b"abcd"


@pytest.mark.parametrize("codec", PACKED)
def test_a_decompression_bomb_is_rejected_within_the_memory_limit(codec):
    bomb = bytes(compress(bytes(32 * 2**20), codec))
    tracemalloc.start()
    try:
        with pytest.raises(BatchInflatesTooFar):
            decompress(bomb, codec, max_bytes=2**20)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * 2**20


def test_a_snappy_block_with_a_huge_claimed_size_is_rejected():
    claim = b"\xff\xff\xff\x7f" + bytes(20)
    with pytest.raises(CorruptBatch):
        decompress(claim, Compression.SNAPPY)


@given(st.binary(max_size=100), st.sampled_from([*PACKED, 5, 7]), st.booleans())
def test_garbage_raises_only_corrupt_batch(garbage, codec, with_frame):
    if with_frame and codec in PACKED:
        garbage = bytes(compress(b"good", codec))[:12] + garbage
    with suppress(CorruptBatch):
        decompress(garbage, codec, max_bytes=2**16)


@pytest.mark.parametrize("codec", PACKED)
def test_a_truncated_stream_is_corrupt(codec):
    packed = bytes(compress(TEXT, codec))
    for cut in (1, 5, len(packed) // 2):
        with pytest.raises(CorruptBatch):
            decompress(packed[:-cut], codec)


def test_uncompressed_and_none_are_the_same_codec():
    assert Compression.from_name("uncompressed") is Compression.from_name("none") is Compression.NONE
    assert Compression.from_name("zstd") is Compression.ZSTD
