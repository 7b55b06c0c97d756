"""A query's note as text: kept beside a group's offset, which may carry about four thousand characters."""

import base64
import json
import zlib
from collections.abc import Mapping

from runnel.pipelines.errors import PipelineError
from runnel.pipelines.sink.decision import Note, Part

PIECE_CHARACTERS = 4000
"""Brokers take 4096 bytes (offset.metadata.max.bytes)."""
_PACKED = "z"
_PLAIN = "j"


def note_texts(note: Note, prefix: str) -> list[str]:
    """The note in pieces, of which the first says how many; ids are without what all of them begin with."""
    parts = [
        [part.transactional_id.removeprefix(prefix), part.producer_id, part.producer_epoch]
        for part in note.parts
    ]
    content: dict[str, object] = {"rows": note.rows, "parts": parts}
    if note.is_revoked:
        content["revoked"] = True
    if note.is_ended:
        content["ended"] = True
    text = _PLAIN + json.dumps(content, separators=(",", ":"))
    if len(text) > PIECE_CHARACTERS // 2:
        text = _PACKED + base64.b64encode(zlib.compress(text[1:].encode(), 9)).decode()
    room = PIECE_CHARACTERS - 10
    pieces = [text[start : start + room] for start in range(0, len(text), room)]
    return [f"{len(pieces)}:{pieces[0]}", *pieces[1:]]


def piece_count(first: str) -> int:
    """In how many pieces the note is that begins like this."""
    count = first.partition(":")[0]
    return int(count) if count.isdecimal() else 1


def note_from(batch: int, texts: Mapping[int, tuple[int, str]], prefix: str) -> Note:
    """The note of a batch from its pieces, each with the batch that it was written with."""
    try:
        count, _, first = texts[0][1].partition(":")
        pieces = [first]
        for index in range(1, int(count)):
            written_with, piece = texts[index]
            if written_with != batch:
                raise ValueError(f"piece {index} is of batch {written_with}")
            pieces.append(piece)
        text = "".join(pieces)
        body = zlib.decompress(base64.b64decode(text[1:])) if text[0] == _PACKED else text[1:].encode()
        content = json.loads(body)
        parts = tuple(Part(prefix + name, *numbers) for name, *numbers in content["parts"])
        is_revoked, is_ended = content.get("revoked", False), content.get("ended", False)
        return Note(batch, content["rows"], parts, is_revoked, is_ended)
    except (ValueError, KeyError, IndexError, TypeError, zlib.error) as error:
        raise PipelineError(f"the note of batch {batch} under {prefix} cannot be read: {error!r}") from error
