"""Valid files: values, defaults, positions and paths."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.pipelines.declared.declaration import ParquetTarget, TableTarget, TopicTarget, Trigger
from runnel.pipelines.declared.findings import Findings, Position
from runnel.pipelines.declared.graph import in_order, sources_of
from runnel.pipelines.declared.python_file import load_function
from runnel.pipelines.declared.reading import read_file, read_text
from runnel.pipelines.declared.tree import Scalar, parse

FOLDER = Path("/shop")
MINIMAL = """
name: shop
sources:
  orders: {topic: orders, schema: "id string, at timestamp"}
sinks:
  out: {from: orders, topic: out}
"""


def read(text: str, **environment: str):
    findings = Findings()
    declaration = read_text(text, FOLDER, environment, findings)
    assert [finding.message for finding in findings] == []
    assert declaration is not None
    return declaration


def test_defaults() -> None:
    shop = read(MINIMAL)
    assert shop.broker == "127.0.0.1:9092"
    assert shop.checkpoint == "/shop/.runnel/checkpoints/shop"
    assert shop.trigger == Trigger(is_once=False, interval_ms=10_000)
    orders = shop.sources["orders"]
    assert (orders.format, orders.start, orders.on_malformed) == ("json", "earliest", "dead-letter")
    assert orders.fails_on_data_loss
    assert not orders.keeps_tombstones
    assert shop.sinks["out"].mode == "append"
    target = shop.sinks["out"].target
    assert isinstance(target, TopicTarget)
    assert (target.key, target.value, target.delivery) == (None, (), "exactly-once")


def test_the_broker_defaults_to_the_environment() -> None:
    assert read(MINIMAL, RUNNEL_BOOTSTRAP="a:1").broker == "a:1"
    assert read(f"{MINIMAL}broker: b:2,c:3", RUNNEL_BOOTSTRAP="a:1").broker == "b:2,c:3"
    assert read(f"{MINIMAL}broker: ${{WHERE}}", WHERE="d:4").broker == "d:4"
    assert read(f"{MINIMAL}broker: ${{WHERE:-e:5}}", WHERE="").broker == "e:5"


@pytest.mark.parametrize(
    ("text", "trigger"),
    [
        ("once", Trigger(True, 0)),
        ("continuous", Trigger(False, 0)),
        ("10 seconds", Trigger(False, 10_000)),
        ("1 hour 30 minutes", Trigger(False, 5_400_000)),
        ("500ms", Trigger(False, 500)),
        ("2m", Trigger(False, 120_000)),
    ],
)
def test_triggers(text: str, trigger: Trigger) -> None:
    assert read(f"{MINIMAL}trigger: {text}").trigger == trigger


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("latest", "latest"),
        ("2026-10-01T12:00:00Z", "1790856000000"),
        ("2026-10-01 12:00:00", "1790856000000"),
        ("2026-10-01T14:00:00+02:00", "1790856000000"),
    ],
)
def test_starts(text: str, start: str) -> None:
    assert (
        read(MINIMAL.replace("topic: orders,", f"topic: orders, start: '{text}',")).sources["orders"].start
        == start
    )


@pytest.mark.parametrize(
    ("text", "value"),
    [("json", ()), ("id", "id"), ("[id]", ("id",)), ("[id, at]", ("id", "at")), ("[json]", ("json",))],
)
def test_values_of_topics(text: str, value: object) -> None:
    target = read(MINIMAL.replace("topic: out", f"topic: out, value: {text}")).sinks["out"].target
    assert isinstance(target, TopicTarget)
    assert target.value == value


def test_paths_are_relative_to_the_file() -> None:
    sinks = read(
        f"{MINIMAL}"
        "  table: {from: orders, table: shop.orders, warehouse: house}\n"
        "  files: {from: orders, parquet: s3://bucket/files}\n"
        "  more: {from: orders, parquet: /elsewhere}\n"
    ).sinks
    assert isinstance(table := sinks["table"].target, TableTarget)
    assert table.warehouse == "/shop/house"
    assert sinks["files"].target == ParquetTarget("s3://bucket/files", ())
    assert sinks["more"].target == ParquetTarget("/elsewhere", ())


def test_steps_are_in_topological_order() -> None:
    shop = read(
        MINIMAL.replace("from: orders", "from: c")
        + "steps:\n"
        + "  c: {sql: SELECT * FROM B}\n  b: {sql: SELECT * FROM a}\n  a: {sql: SELECT * FROM Orders}\n"
    )
    assert [step.name for step in in_order(shop.steps)] == ["a", "b", "c"]
    assert [source.name for source in sources_of("C", shop)] == ["orders"]


def test_aliases() -> None:
    shop = read(
        MINIMAL.replace("orders: {", "orders: &one {").replace("sinks:", "  more: *one\nsinks:") + MORE
    )
    assert shop.sources["more"].topics == shop.sources["orders"].topics


MORE = "  also: {from: more, topic: also}\n"


def test_recursive_aliases_are_rejected() -> None:
    findings = Findings()
    read_text("name: shop\nsources: &all\n  orders: *all\nsinks: *all\n", FOLDER, {}, findings)
    assert "an alias refers to a mapping or list that contains it" in [
        finding.message for finding in findings
    ]


@given(st.text())
def test_any_text_is_parsed_or_rejected(text: str) -> None:
    findings = Findings()
    declaration = read_text(text, FOLDER, {}, findings)
    assert declaration is not None or findings.has_errors


@given(
    st.lists(st.text(alphabet="abc  'ü", min_size=1).filter(lambda line: line.strip()), min_size=1),
    st.integers(1, 6),
)
def test_every_character_of_a_block_has_its_position(lines: list[str], indent: int) -> None:
    """In a block, the character at an index of the text is the one at its position in the file."""
    lines = [f"x{line}" for line in lines]
    file = "sql: |\n" + "".join(f"{' ' * indent}{line}\n" for line in lines)
    tree = parse(file, {}, Findings())
    scalar = tree.entries["sql"].value  # type: ignore[union-attr]
    assert isinstance(scalar, Scalar)
    rows = file.split("\n")
    for index, character in enumerate(scalar.text):
        position = scalar.position_of(index)
        if character != "\n":
            assert rows[position.line - 1][position.column - 1] == character


def test_positions_of_a_quoted_text() -> None:
    tree = parse('sql: "SELECT 1"', {}, Findings())
    scalar = tree.entries["sql"].value  # type: ignore[union-attr]
    assert isinstance(scalar, Scalar)
    assert scalar.position_of(7) == Position(1, 14)


def test_a_file_that_is_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_bytes(b"name: caf\xe9\n")
    declaration, findings = read_file(path, {})
    assert declaration is None
    assert [finding.message for finding in findings] == ["the file is not UTF-8: invalid byte at offset 9"]


def test_a_function_in_a_file_with_a_syntax_error(tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text("def broken(:\n    pass\n")
    findings = Findings()
    steps = "steps:\n  a: {python: 'steps.py:broken', inputs: [orders]}\n"
    read_text(MINIMAL.replace("from: orders", "from: a") + steps, tmp_path, {}, findings)
    assert [finding.message for finding in findings] == ["steps.py:1: syntax error: invalid syntax"]


def test_functions_are_loaded_by_value(tmp_path: Path) -> None:
    """Workers do not have the file."""
    from pyspark import cloudpickle

    (tmp_path / "steps.py").write_text("FACTOR = 3\n\ndef tripled(x):\n    return FACTOR * x\n")
    findings = Findings()
    steps = "steps:\n  a: {python: 'steps.py:tripled', inputs: [orders]}\n"
    shop = read_text(MINIMAL.replace("from: orders", "from: a") + steps, tmp_path, {}, findings)
    assert shop is not None
    python = shop.steps["a"].python
    assert python is not None
    tripled = load_function(python)
    assert b"FACTOR" in cloudpickle.dumps(tripled)
    assert tripled(2) == 6
