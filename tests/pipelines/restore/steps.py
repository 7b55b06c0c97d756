"""What tests of restoring share: the trail of a record, in the obvious way."""

from runnel.batch.records import Headers


def restore_headers(topic: str, partition: int, offset: int, timestamp_ms: int) -> Headers:
    """What a restored record carries behind its own headers."""
    return [
        ("runnel.restore.topic", topic.encode()),
        ("runnel.restore.partition", b"%d" % partition),
        ("runnel.restore.offset", b"%d" % offset),
        ("runnel.restore.timestamp", b"%d" % timestamp_ms),
    ]
