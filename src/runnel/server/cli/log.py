"""`runnel log …`: inspect the log files of a broker."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from runnel.server.cli.options import Json

if TYPE_CHECKING:
    from runnel.disk.dump import BatchRow, Row
    from runnel.disk.keyring import Keyring

LogPath = Annotated[
    str,
    typer.Argument(
        metavar="PATH",
        help="Segment (.log), producer snapshot, transaction index, partition directory or data directory.",
        show_default=False,
    ),
]
MasterKeyFile = Annotated[
    Path | None,
    typer.Option(
        "--master-key-file",
        metavar="FILE",
        help="The file of encryption.master.key.file, to decrypt encrypted segments.",
        show_default=False,
    ),
]

app = typer.Typer(help="Inspect the log files of a broker.", no_args_is_help=True)


@app.callback()
def log() -> None:
    """Inspect the log files of a broker."""


@app.command()
def dump(
    path: LogPath,
    records: Annotated[bool, typer.Option("--records", "-r", help="Print the records too.")] = False,
    problems_only: Annotated[bool, typer.Option("--check", help="Print problems only.")] = False,
    master_key_file: MasterKeyFile = None,
    as_json: Json = False,
) -> None:
    """Print log files batch by batch and verify them. Exits with status 1 if a problem is found.

    The broker may be running; its active segments may then appear truncated. Without a master key, only the
    headers of encrypted batches are printed.

    Example: runnel log dump data/orders-0 --records

    Example: runnel log dump data --check
    """
    from runnel.disk.dump import BatchRow, ProblemRow, RecordRow, dump
    from runnel.disk.os_files import OsFiles
    from runnel.server.cli.output import CommandError, print_error

    files = OsFiles()
    keyring = None if master_key_file is None else _keyring(str(master_key_file), path)
    problems = segments = 0
    is_marker = False
    try:
        _check_path(Path(path))
        for row in dump(files, path.rstrip("/") or "/", with_records=records, keyring=keyring):
            is_problem = isinstance(row, ProblemRow)
            problems += is_problem
            segments += type(row).__name__ == "SegmentRow"
            if isinstance(row, BatchRow):
                is_marker = row.marker is not None
            # The batch line of a control batch already shows the marker; its record is binary.
            is_redundant = is_marker and isinstance(row, RecordRow) and not as_json
            if is_problem or not (problems_only or is_redundant):
                print(_json(row) if as_json else _text(row))
    except PermissionError as error:
        raise CommandError(f"cannot read {error.filename}: {error.strerror}") from error
    if problems:
        print_error(f"{problems} problem{'s' * (problems != 1)} in {path}")
        raise typer.Exit(1)
    if problems_only and not as_json:
        print(f"{segments} segment{'s' * (segments != 1)} verified, no problems found")


def _keyring(master_key_file: str, path: str) -> "Keyring":
    from runnel.disk.os_files import OsFiles
    from runnel.server.master_keys import new_keyring, parse_master_keys, read_secret_file

    text = read_secret_file(master_key_file, "--master-key-file")
    return new_keyring(parse_master_keys(text, master_key_file), OsFiles(), path)


def _check_path(path: "Path") -> None:
    """Reject paths that are not log files: an empty result would look like a successful check."""
    from runnel.log.names import ABORTED, LOG, SNAPSHOT, partition_of
    from runnel.server.cli.output import CommandError

    if not path.exists():
        raise CommandError(f"no such file or directory: {path}")
    if path.is_file() and path.suffix not in (LOG, SNAPSHOT, ABORTED):
        kinds = f"a segment ({LOG}), a producer snapshot ({SNAPSHOT}) nor a transaction index ({ABORTED})"
        raise CommandError(f"{path} is neither {kinds}")
    if path.is_dir() and partition_of(path.resolve().name) is None:
        names = [file.name for file in path.iterdir()]
        if not any(name.endswith((LOG, SNAPSHOT)) or partition_of(name) for name in names):
            raise CommandError(f"{path} is neither a data directory nor a partition directory")


def _text(row: "Row") -> str:
    from runnel.disk.dump import (
        AbortedRow,
        BatchRow,
        IndexRow,
        ProblemRow,
        ProducerRow,
        RecordRow,
        SegmentRow,
    )
    from runnel.server.cli.output import size_text, time_text
    from runnel.server.cli.records import headers_text

    match row:
        case SegmentRow():
            return f"{row.path}  from offset {row.base_offset}, {size_text(row.size_bytes)}"
        case BatchRow():
            return "  " + "  ".join(_batch_fields(row))
        case RecordRow():
            key = "-" if row.key is None else row.key.decode(errors="replace")
            value = "-" if row.value is None else row.value.decode(errors="replace")
            headers = f"  [{headers_text(row.headers)}]" if row.headers else ""
            return f"    {row.offset}  {time_text(row.timestamp_ms) or '-'}  {key}  {value}{headers}"
        case IndexRow():
            return f"  {row.path}  {row.entries} entries"
        case AbortedRow():
            offsets = f"offsets {row.first_offset}-{row.last_offset}  last stable {row.last_stable_offset}"
            return f"    aborted: producer {row.producer_id}  {offsets}"
        case ProducerRow():
            return f"  {row.path}  {row.producer}"
        case ProblemRow():
            return f"  PROBLEM at {row.path}:{row.position}: {row.text}"


def _batch_fields(row: "BatchRow") -> Iterator[str]:
    from runnel.server.cli.output import size_text, time_text

    header = row.header
    yield f"@{row.position}"
    yield f"offsets {header.base_offset}-{header.last_offset}"
    yield f"{header.record_count} record{'s' * (header.record_count != 1)}"
    yield size_text(row.size_bytes)
    yield f"epoch {header.leader_epoch}"
    yield time_text(header.max_timestamp) or "no timestamp"
    if row.compression != "none":
        yield row.compression
    if header.producer_id >= 0:
        yield f"producer {header.producer_id}/{header.producer_epoch} sequence {header.base_sequence}"
    if header.is_transactional:
        yield "transactional"
    if row.marker is not None:
        end = "commit" if row.marker.committed else "abort"
        yield f"{end} marker of coordinator epoch {row.marker.coordinator_epoch}"
    elif header.is_control:
        yield "control"
    if row.is_encrypted:
        yield "encrypted"
    if row.crc_is_valid is not None:
        yield "crc ok" if row.crc_is_valid else "CRC INVALID"


def _json(row: "Row") -> str:
    import json
    from dataclasses import asdict

    document: dict[str, Any] = {"row": type(row).__name__.removesuffix("Row").lower()}
    document.update(_plain(asdict(row).items()))
    return json.dumps(document, ensure_ascii=False)


def _plain(items: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Values that JSON supports; bytes become UTF-8 text where valid, else base64."""
    import base64

    for name, value in items:
        if isinstance(value, bytes):
            try:
                yield name, value.decode("utf-8")
            except UnicodeDecodeError:
                yield f"{name}_base64", base64.b64encode(value).decode("ascii")
        elif isinstance(value, dict):
            yield name, dict(_plain(value.items()))
        elif name == "headers":
            yield name, [dict(_plain((("name", key), ("value", header)))) for key, header in value]
        else:
            yield name, value
