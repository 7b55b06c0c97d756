"""Avro schemas: inline, or in a file relative to the pipeline file."""

import json
from pathlib import Path
from typing import Any

from runnel.pipelines.declared.declaration import Column, Schema
from runnel.pipelines.declared.findings import Findings, did_you_mean
from runnel.pipelines.declared.tree import Node, Scalar, described


def read_avro_schema(node: Node, folder: Path, findings: Findings) -> Schema | None:
    """Parse the schema of an Avro record; None on errors, which are added to the findings."""
    if not isinstance(node, Scalar) or node.kind != "text":
        findings.error(
            node.position,
            f"expected an Avro schema as JSON, or a file such as orders.avsc, found {described(node)}",
        )
        return None
    text = _text(node, folder, findings)
    if text is None:
        return None
    try:
        record = json.loads(text)
    except ValueError as error:
        findings.error(node.position, f"the Avro schema is not valid JSON: {error}")
        return None
    if not isinstance(record, dict) or record.get("type") != "record":
        findings.error(node.position, "the Avro schema is not a record")
        return None
    fields = record.get("fields")
    columns = [_column(field, node) for field in fields] if isinstance(fields, list) else []
    if not columns or not all(columns):
        findings.error(node.position, "the Avro record has no fields, or a field without name or type")
        return None
    return Schema(text, tuple(column for column in columns if column), node.position)


def _text(node: Scalar, folder: Path, findings: Findings) -> str | None:
    if node.text.lstrip().startswith("{"):
        return node.text
    path = folder / node.text.strip()
    try:
        return path.read_text("utf-8")
    except (OSError, ValueError):
        close = did_you_mean(path.name, [file.name for file in folder.glob("*.av*")])
        findings.error(node.position, f"the Avro schema {path} cannot be read{close}")
        return None


def _column(field: Any, node: Scalar) -> Column | None:
    if not isinstance(field, dict) or not isinstance(field.get("name"), str) or "type" not in field:
        return None
    return Column(field["name"], json.dumps(field["type"]), node.position)
