"""Avro schemas: as text in the pipeline's file, or in a file beside it."""

import json
from pathlib import Path
from typing import Any

from runnel.pipelines.declared.declaration import Column, Schema
from runnel.pipelines.declared.findings import Findings, did_you_mean
from runnel.pipelines.declared.tree import Node, Scalar, described


def read_avro_schema(node: Node, folder: Path, findings: Findings) -> Schema | None:
    """The fields of an Avro record; None where they could not be read, and the findings then say why."""
    if not isinstance(node, Scalar) or node.kind != "text":
        findings.error(
            node.place,
            f"expected an Avro schema as JSON, or its file, as orders.avsc, found {described(node)}",
        )
        return None
    text = _text(node, folder, findings)
    if text is None:
        return None
    try:
        record = json.loads(text)
    except ValueError as error:
        findings.error(node.place, f"the Avro schema is no JSON: {error}")
        return None
    if not isinstance(record, dict) or record.get("type") != "record":
        findings.error(node.place, "the Avro schema is no record, so it has no columns")
        return None
    fields = record.get("fields")
    columns = [_column(field, node) for field in fields] if isinstance(fields, list) else []
    if not columns or not all(columns):
        findings.error(node.place, "the Avro record has no fields, or some without name and type")
        return None
    return Schema(text, tuple(column for column in columns if column), node.place)


def _text(node: Scalar, folder: Path, findings: Findings) -> str | None:
    if node.text.lstrip().startswith("{"):
        return node.text
    path = folder / node.text.strip()
    try:
        return path.read_text("utf-8")
    except (OSError, ValueError):
        close = did_you_mean(path.name, [file.name for file in folder.glob("*.av*")])
        findings.error(node.place, f"the Avro schema {path} cannot be read{close}")
        return None


def _column(field: Any, node: Scalar) -> Column | None:
    if not isinstance(field, dict) or not isinstance(field.get("name"), str) or "type" not in field:
        return None
    return Column(field["name"], json.dumps(field["type"]), node.place)
