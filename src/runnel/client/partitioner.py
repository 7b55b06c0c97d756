"""The default partitioner for keys, compatible with the Java client."""

MASK = 0xFFFFFFFF
MULTIPLIER = 0x5BD1E995
SEED = 0x9747B28C


def murmur2(data: bytes) -> int:
    """The 32-bit MurmurHash2 of `data` under Kafka's seed, unsigned."""
    length = len(data)
    value = SEED ^ length
    whole = length & ~3
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little") * MULTIPLIER & MASK
        word = (word ^ word >> 24) * MULTIPLIER & MASK
        value = (value * MULTIPLIER & MASK) ^ word
    if length > whole:
        value = (value ^ int.from_bytes(data[whole:], "little")) * MULTIPLIER & MASK
    value = (value ^ value >> 13) * MULTIPLIER & MASK
    return value ^ value >> 15


def partition_for_key(key: bytes, partition_count: int) -> int:
    """The partition of a key."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count
