"""Kafka's default partitioner, vectorized: MurmurHash2 of a column of keys."""

import numpy as np
import numpy.typing as npt

from runnel.client.partitioner import MULTIPLIER, SEED
from runnel.pipelines.sink.binary import Bytes, Numbers

_M = np.uint32(MULTIPLIER)
_SIGN = np.uint32(0x7FFFFFFF)


def murmur2_of(data: Bytes, starts: Numbers, lengths: Numbers) -> npt.NDArray[np.uint32]:
    """The hash of each run of bytes in `data`."""
    hashes = np.uint32(SEED) ^ lengths.astype(np.uint32)
    if len(starts) == 0:
        return hashes
    # Padding, so that a word can be read at every position.
    padded = np.concatenate((data, np.zeros(4, np.uint8)))
    words = np.ndarray((len(padded) - 3,), "<u4", buffer=padded.data, strides=(1,))
    counts = lengths >> 2
    for index in range(int(counts.max())):
        rows = np.flatnonzero(counts > index)
        word = words[starts[rows] + 4 * index] * _M
        word ^= word >> np.uint32(24)
        word *= _M
        hashes[rows] = hashes[rows] * _M ^ word
    tails = lengths & 3
    rows = np.flatnonzero(tails)
    masks = (np.uint32(1) << (8 * tails[rows]).astype(np.uint32)) - np.uint32(1)
    hashes[rows] = (hashes[rows] ^ (words[starts[rows] + 4 * counts[rows]] & masks)) * _M
    hashes ^= hashes >> np.uint32(13)
    hashes *= _M
    hashes ^= hashes >> np.uint32(15)
    return hashes


def partitions_of(data: Bytes, starts: Numbers, lengths: Numbers, partition_count: int) -> Numbers:
    """The partition that each key belongs to."""
    hashes = murmur2_of(data, starts, lengths) & _SIGN
    return (hashes % np.uint32(partition_count)).astype(np.int64)
