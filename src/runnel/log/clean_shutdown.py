"""The file that marks a clean shutdown, in Kafka's format: the epoch of the broker that closed the folder."""

import json

NO_EPOCH = -1
"""Of a broker that was not registered, or of a folder that was not closed cleanly."""


def encode_clean_shutdown(broker_epoch: int) -> bytes:
    return json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode()


def decode_clean_shutdown(data: bytes) -> int:
    """The broker epoch; -1 if the file has none, as those of releases before Kafka 3.7."""
    try:
        epoch = json.loads(data)["brokerEpoch"]
    except (ValueError, TypeError, KeyError):
        return NO_EPOCH
    return epoch if type(epoch) is int else NO_EPOCH
