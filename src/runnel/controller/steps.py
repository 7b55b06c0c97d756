"""Decisions over many partitions, made in steps.

A step yields a batch of records, perhaps an empty one, and receives the image with these records replayed.
Other changes may be decided between two steps, and each step sees them. The generator returns the response:

    image = yield records          in the decision
    records = steps.send(image)    in its driver; next(steps) the first time

Batches are appended one after the other, without waiting for their commit; the response waits for the last.
If a batch cannot be written or another controller is elected, the driver closes the generator.
"""

from collections.abc import Callable, Generator
from typing import TypeVar

from runnel.controller.image import MetadataImage
from runnel.schemas.metadata import MetadataRecord

Response = TypeVar("Response")

Steps = Generator[list[MetadataRecord], MetadataImage, Response]

PARTITIONS_PER_STEP = 1000
"""How many partitions a step examines: with encoding and replaying its records, some 20 ms."""


def finish(steps: Steps[Response], carry_out: Callable[[list[MetadataRecord]], MetadataImage]) -> Response:
    """Make all steps at once; `carry_out` replays a batch and returns the image."""
    try:
        records = next(steps)
        while True:
            records = steps.send(carry_out(records))
    except StopIteration as end:
        response: Response = end.value
        return response
