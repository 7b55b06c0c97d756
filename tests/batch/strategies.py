"""Hypothesis strategies for records and batches, shared by the batch and log tests."""

from hypothesis import strategies as st

from runnel.batch.compression import Compression
from runnel.batch.records import Record

timestamps = st.integers(0, 2**45)
keys = st.none() | st.binary(max_size=40)
values = st.none() | st.binary(max_size=300)
headers = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=20)), max_size=3)
compressions = st.sampled_from(Compression)


def record_lists(min_size: int = 1, max_size: int = 20) -> st.SearchStrategy[list[Record]]:
    """Records at offsets 0, 1, 2, …"""
    bodies = st.lists(st.tuples(timestamps, keys, values, headers), min_size=min_size, max_size=max_size)
    return bodies.map(lambda rows: [Record(offset, *row) for offset, row in enumerate(rows)])
