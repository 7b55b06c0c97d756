"""Serialization of commit markers as metadata of committed offsets, of at most 4096 bytes each."""

import base64
import json
import zlib
from collections.abc import Mapping

from runnel.pipelines.errors import PipelineError
from runnel.pipelines.sink.decision import CommitMarker, Part

PIECE_CHARACTERS = 4000
"""Below the default of offset.metadata.max.bytes, 4096."""
_PACKED = "z"
_PLAIN = "j"


def marker_texts(marker: CommitMarker, prefix: str) -> list[str]:
    """The marker in pieces, the first of which starts with their number; ids omit the common prefix."""
    parts = [
        [part.transactional_id.removeprefix(prefix), part.producer_id, part.producer_epoch]
        for part in marker.parts
    ]
    content: dict[str, object] = {"rows": marker.rows, "parts": parts}
    if marker.is_revoked:
        content["revoked"] = True
    if marker.is_ended:
        content["ended"] = True
    text = _PLAIN + json.dumps(content, separators=(",", ":"))
    if len(text) > PIECE_CHARACTERS // 2:
        text = _PACKED + base64.b64encode(zlib.compress(text[1:].encode(), 9)).decode()
    room = PIECE_CHARACTERS - 10
    pieces = [text[start : start + room] for start in range(0, len(text), room)]
    return [f"{len(pieces)}:{pieces[0]}", *pieces[1:]]


def piece_count(first: str) -> int:
    """The number of pieces of a marker, from its first piece."""
    count = first.partition(":")[0]
    return int(count) if count.isdecimal() else 1


def marker_from(batch: int, texts: Mapping[int, tuple[int, str]], prefix: str) -> CommitMarker:
    """The commit marker of a batch from its pieces, each with the batch it was written for."""
    try:
        count, _, first = texts[0][1].partition(":")
        pieces = [first]
        for index in range(1, int(count)):
            written_with, piece = texts[index]
            if written_with != batch:
                raise ValueError(f"piece {index} belongs to batch {written_with}")
            pieces.append(piece)
        text = "".join(pieces)
        body = zlib.decompress(base64.b64decode(text[1:])) if text[0] == _PACKED else text[1:].encode()
        content = json.loads(body)
        parts = tuple(Part(prefix + name, *numbers) for name, *numbers in content["parts"])
        is_revoked, is_ended = content.get("revoked", False), content.get("ended", False)
        return CommitMarker(batch, content["rows"], parts, is_revoked, is_ended)
    except (ValueError, KeyError, IndexError, TypeError, zlib.error) as error:
        raise PipelineError(
            f"the commit marker of batch {batch} under {prefix} is invalid: {error!r}"
        ) from error
