"""`runnel produce` and `runnel consume` with schemas of a registry."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.serialization import MessageField, SerializationContext

from runnel.gateway.options import GatewayOptions
from runnel.registry.formats import AVRO, JSON, PROTOBUF
from runnel.registry.framing import framed
from runnel.testing import Broker
from tests.gateway.gateways import serving
from tests.gateway.registry.test_confluent_clients import JSON_SCHEMA, PROTO, RECORD, SERDES
from tests.server.cli import CommandLine

FORMAT_OF = {AVRO: "avro", JSON: "json-schema", PROTOBUF: "protobuf"}
TEXTS = {AVRO: (RECORD, "order.avsc"), JSON: (JSON_SCHEMA, "order.json"), PROTOBUF: (PROTO, "order.proto")}
NOTED = (
    '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"},'
    '{"name":"note","type":["null","string","bytes"],"default":null}]}'
)


@pytest.fixture(scope="module")
def registry_url(runnel_session: Broker) -> Iterator[str]:
    with serving(GatewayOptions(runnel_session.bootstrap_servers)) as visitor:
        yield visitor.origin


@pytest.fixture
def runnel(run: CommandLine, registry_url: str, name: str, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """The command line, with a registry and a topic."""
    monkeypatch.setenv("RUNNEL_REGISTRY", registry_url)
    run.ok("topic", "create", name, "--partitions", "1")
    return run


@pytest.fixture
def confluent(registry_url: str) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry_url}) as client:
        yield client


@pytest.fixture
def order(tmp_path):
    file = tmp_path / "order.avsc"
    file.write_text(NOTED)
    return str(file)


def sent(broker: Broker, topic: str, *values: bytes, key: bytes | None = None) -> None:
    with broker.client() as kafka:
        for value in values:
            kafka.send(topic, value, key=key)


def stored(broker: Broker, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    with broker.client() as kafka:
        return [(message.key, message.value) for message in kafka.read(topic)]


@pytest.mark.parametrize("kind", [AVRO, JSON, PROTOBUF])
def test_what_serializers_of_confluent_write_is_printed(runnel, runnel_session, confluent, name, kind):
    write, _ = SERDES[kind](confluent, is_newer=False)
    context = SerializationContext(name, MessageField.VALUE)
    sent(runnel_session, name, *(write({"id": number}, context) for number in range(3)))

    for wanted in (FORMAT_OF[kind], "auto"):
        lines = runnel.ok("consume", name, "--value-format", wanted).lines
        found = [json.loads(line) for line in lines]
        # Protobuf's JSON has 64-bit integers as text.
        assert [int(one["id"]) for one in found] == [0, 1, 2]


@pytest.mark.parametrize("kind", [AVRO, JSON, PROTOBUF])
def test_what_is_produced_is_read_by_deserializers_of_confluent(
    runnel, runnel_session, confluent, name, kind, tmp_path
):
    text, file_name = TEXTS[kind]
    file = tmp_path / file_name
    file.write_text(text)
    options = ["--value-format", FORMAT_OF[kind], "--value-schema", str(file)]
    runnel.ok("produce", name, *options, stdin='{"id": 1}\n{"id": 2}\n')
    assert confluent.get_versions(f"{name}-value") == [1]
    runnel.ok("produce", name, '{"id": 3}', "--value-format", FORMAT_OF[kind])
    runnel.ok("produce", name, '{"id": 4}', *options, "--no-register")

    _, read = SERDES[kind](confluent, is_newer=False)
    context = SerializationContext(name, MessageField.VALUE)
    assert [read(value, context) for _, value in stored(runnel_session, name)] == [
        {"id": number} for number in (1, 2, 3, 4)
    ]
    assert confluent.get_versions(f"{name}-value") == [1]


def test_bytes_are_those_of_confluent(runnel, runnel_session, confluent, name):
    for kind in (AVRO, JSON, PROTOBUF):
        topic = f"{name}-{kind}"
        runnel.ok("topic", "create", topic, "--partitions", "1")
        write, _ = SERDES[kind](confluent, is_newer=False)
        theirs = write({"id": 42}, SerializationContext(topic, MessageField.VALUE))
        runnel.ok("produce", topic, '{"id": 42}', "--value-format", FORMAT_OF[kind])
        ((_, ours),) = stored(runnel_session, topic)
        assert ours == theirs.replace(b'{"id":42}', b'{"id": 42}')


def test_keys_and_values(runnel, runnel_session, name, order, tmp_path):
    key = tmp_path / "key.avsc"
    key.write_text('"string"')
    schemas = ["--key-format", "avro", "--key-schema", str(key), "--value-format", "avro"]
    lines = '"anna"\t{"id": 1, "note": {"string": "tea"}}\n"bert"\t{"id": 2}\n'
    runnel.ok("produce", name, *schemas, "--value-schema", order, "-K", "\t", stdin=lines)
    runnel.ok(
        "produce", name, '{"id": 3}', "--key", '"cora"', "--key-format", "avro", "--value-format", "avro"
    )

    printed = runnel.ok("consume", name, "--keys", "--key-format", "avro", "--value-format", "avro").lines
    assert printed == [
        '"anna"\t{"id":1,"note":{"string":"tea"}}',
        '"bert"\t{"id":2,"note":null}',
        '"cora"\t{"id":3,"note":null}',
    ]
    assert [key[5:] for key, _ in stored(runnel_session, name) if key] == [
        b"\x08anna",
        b"\x08bert",
        b"\x08cora",
    ]


@pytest.fixture
def mixed(runnel, name, order, tmp_path):
    """Lines of a topic with records of several schemas and formats, tombstones and what is not framed."""
    proto = tmp_path / "order.proto"
    proto.write_text('syntax = "proto3"; message First {} message Order { int64 id = 1; bytes raw = 2; }')
    avro = ["--value-format", "avro", "--value-schema"]
    runnel.ok("produce", name, *avro, order, stdin='{"id": 1, "note": {"bytes": "\\u00ff"}}\n{"id": 2}\n')
    newer = tmp_path / "newer.avsc"
    newer.write_text(NOTED.replace("long", "double"))
    runnel.ok("produce", name, '{"id": 1.5}', *avro, str(newer), "--value-subject", f"{name}-2")
    protobuf = [
        "--value-format",
        "protobuf",
        "--value-schema",
        str(proto),
        "--value-subject",
        f"{name}-proto",
    ]
    runnel.ok("produce", name, '{"id": 7, "raw": "/w=="}', *protobuf, "--value-message", "Order")
    nullable = tmp_path / "nullable.avsc"
    nullable.write_text('["null", "string"]')
    runnel.ok("produce", name, "null", *avro, str(nullable), "--value-subject", f"{name}-nullable")
    runnel.ok("produce", name, "plain text", "--key", "k")
    runnel.ok("produce", name, "--json", stdin='{"key": "k", "value": null}\n{"value_base64": "AAD/"}\n')
    return runnel.ok("consume", name, "--json", "--value-format", "auto", "--key-format", "auto").lines


def test_json_lines_have_the_ids_of_schemas(mixed):
    found = [json.loads(line) for line in mixed]
    assert found[0]["value"] == {"id": 1, "note": {"bytes": "ÿ"}}
    assert found[0]["value_schema_id"] == found[1]["value_schema_id"] != found[2]["value_schema_id"]
    assert found[3]["value"] == {"id": "7", "raw": "/w=="}
    assert found[3]["value_message"] == "Order"
    assert (found[4]["value"], "value_schema_id" in found[4]) == (None, True)
    assert (found[5]["value"], "value_schema_id" in found[5]) == ("plain text", False)
    assert (found[6]["value"], "value_schema_id" in found[6]) == (None, False)
    assert found[7]["value_base64"] == "AAD/"


def test_json_lines_are_copied_with_their_schemas(runnel, runnel_session, name, mixed):
    runnel.ok("topic", "create", f"{name}-copy", "--partitions", "1")
    formats = ["--value-format", "auto", "--key-format", "auto"]
    runnel.ok("produce", f"{name}-copy", "--json", *formats, stdin="\n".join(mixed))
    assert stored(runnel_session, f"{name}-copy") == stored(runnel_session, name)


def test_json_lines_use_their_schemas_unless_options_name_another(runnel, runnel_session, name, mixed):
    runnel.ok("topic", "create", f"{name}-avro", "--partitions", "1")
    lines = "\n".join(mixed[:2])
    runnel.ok("produce", f"{name}-avro", "--json", "--value-format", "avro", stdin=lines)
    assert stored(runnel_session, f"{name}-avro") == stored(runnel_session, name)[:2]
    refused = runnel("produce", f"{name}-avro", "--json", "--value-format", "protobuf", stdin=lines)
    assert "is of type AVRO, not PROTOBUF" in refused.err
    other = ["--value-format", "avro", "--value-subject", f"{name}-2"]
    runnel.ok("produce", f"{name}-avro", "--json", *other, stdin=lines)
    last = json.loads(runnel.ok("consume", f"{name}-avro", "--json", *other[:2]).lines[-1])
    assert (last["value"], last["value_schema_id"]) == (
        {"id": 2.0, "note": None},
        json.loads(mixed[2])["value_schema_id"],
    )


def test_json_lines_without_a_format_that_they_need(runnel, name):
    for line, expected in [
        ('{"value": {}, "value_schema_id": 1}', "value_schema_id requires --value-format, for example auto"),
        ('{"key": 1, "value": "", "key_schema_id": 1}', "key_schema_id requires --key-format"),
    ]:
        refused = runnel("produce", name, "--json", stdin=line)
        assert (refused.code, expected in refused.err) == (1, True), refused.err
    for line, expected in [
        ('{"value_base64": "AA==", "value_schema_id": 1}', "value_base64 cannot be encoded with a schema"),
        ('{"value": 1, "value_schema_id": "x"}', "value_schema_id must be a non-negative integer"),
        ('{"value": 1, "value_schema_id": 1, "value_message": 5}', "value_message must be a name"),
        (
            '{"value": 1, "value_schema_id": 987654}',
            "line 1: the value cannot be encoded: the registry has no",
        ),
    ]:
        refused = runnel("produce", name, "--json", "--value-format", "auto", stdin=line)
        assert (refused.code, expected in refused.err) == (1, True), refused.err
    assert runnel.ok("consume", name).out == ""


def test_references_are_resolved(runnel, name, tmp_path):
    base, line, cart = (tmp_path / one for one in ("base.avsc", "line.avsc", "cart.avsc"))
    base.write_text('{"type":"enum","name":"Unit","symbols":["KG","L"]}')
    line.write_text('{"type":"record","name":"Line","fields":[{"name":"unit","type":"Unit"}]}')
    cart.write_text(
        '{"type":"record","name":"Cart","fields":[{"name":"lines","type":{"type":"array","items":"Line"}},'
        '{"name":"unit","type":"Unit"}]}'
    )
    runnel.ok("schema", "register", f"{name}-base", str(base))
    runnel.ok("schema", "register", f"{name}-line", str(line), "--reference", f"Unit={name}-base:1")
    references = ["--reference", f"Line={name}-line:1", "--reference", f"Unit={name}-base:1"]
    runnel.ok("schema", "register", f"{name}-value", str(cart), *references)

    value = '{"lines":[{"unit":"KG"}],"unit":"L"}'
    runnel.ok("produce", name, value, "--value-format", "avro")
    assert runnel.ok("consume", name, "--value-format", "avro").lines == [value]


def test_versions_of_a_subject(runnel, name, order, tmp_path):
    runnel.ok("schema", "register", f"{name}-value", order)
    newer = tmp_path / "newer.avsc"
    newer.write_text(NOTED.replace("]}", ',{"name":"more","type":"int","default":5}]}'))
    runnel.ok("schema", "register", f"{name}-value", str(newer))
    for version in ("1", "2", "latest"):
        runnel.ok("produce", name, '{"id": 1}', "--value-format", "avro", "--value-version", version)

    printed = runnel.ok("consume", name, "--value-format", "avro").lines
    assert ["more" in json.loads(line) for line in printed] == [False, True, True]


def test_records_that_cannot_be_decoded(runnel, runnel_session, name, order):
    runnel.ok("produce", name, '{"id": 1}', "--value-format", "avro", "--value-schema", order)
    runnel.ok("produce", name, "--json", stdin='{"value": null}\n')
    runnel.ok("produce", name, "plain")
    outcome = runnel("consume", name, "--value-format", "avro")
    assert outcome.code == 1
    assert outcome.lines == ['{"id":1,"note":null}', ""]
    assert outcome.err == (
        f"error: {name}-0 at offset 2: the value cannot be decoded: "
        "it does not begin with a zero byte and the id of a schema\n"
    )
    schema_id = json.loads(runnel.ok("consume", name, "--json", "--value-format", "auto").lines[0])[
        "value_schema_id"
    ]
    sent(
        runnel_session, name, framed(987_654, b""), framed(schema_id, b"\xff"), framed(schema_id, b"\x02\x00")
    )
    for offset, wanted, reason in [
        (3, "avro", "the registry has no schema 987654"),
        (4, "avro", "not data of the schema"),
        (5, "protobuf", f"schema {schema_id} is of type AVRO, not PROTOBUF"),
    ]:
        outcome = runnel("consume", name, "--value-format", wanted, "--from", str(offset), "-n", "1")
        assert outcome.code == 1
        assert f"{name}-0 at offset {offset}: the value cannot be decoded: {reason}" in outcome.err
        assert outcome.err.count("\n") == 1
    raw = runnel.ok("consume", name, "--value-format", "auto", "--from", "2").out.encode("utf-8", "replace")
    assert raw.startswith(b"plain\n\0") and raw.endswith(b'{"id":1,"note":null}\n')
    keys = runnel("consume", name, "--keys", "--key-format", "avro", "--from", "2")
    assert keys.code == 0, "there are no keys"


def test_a_group_does_not_skip_what_it_could_not_decode(runnel, name, order):
    runnel.ok("produce", name, '{"id": 1}', "--value-format", "avro", "--value-schema", order)
    runnel.ok("produce", name, "plain", "rest")
    outcome = runnel("consume", name, "--group", name, "--value-format", "avro")
    assert (outcome.code, outcome.lines) == (1, ['{"id":1,"note":null}'])
    assert "at offset 1" in outcome.err
    assert runnel.ok("consume", name, "--group", name).lines == ["plain", "rest"]


def test_a_line_that_does_not_fit_ends_the_transaction(runnel, name, order):
    lines = '{"id": 1}\n{"id": 2, "note": {"string": 5}}\n{"id": 3}\n'
    options = ["--value-format", "avro", "--value-schema", order, "--transactional-id", name]
    outcome = runnel("produce", name, *options, stdin=lines)
    assert outcome.code == 1
    assert outcome.err.startswith("error: line 2: the value cannot be encoded: it does not fit schema ")
    assert outcome.err.endswith(": at note.string: 5 is not of type string\n")
    assert runnel.ok("consume", name, "--isolation", "read_committed").out == ""
    runnel.ok("produce", name, *options, stdin=lines.replace("5", '"5"'))
    assert len(runnel.ok("consume", name, "--isolation", "read_committed").lines) == 3


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "it is not JSON"),
        ("", "it is not JSON"),
        ('{"id": "x"}', 'at id: "x" is not of type long'),
        ('{"id": 1, "note": "x"}', "at note: \"x\" fits several branches of the union: string, bytes"),
        (b"\xff", "it is not UTF-8"),
    ],
)  # fmt: skip
def test_lines_that_do_not_fit(runnel, name, order, line, problem):
    text = line if isinstance(line, bytes) else line.encode()
    options = ["--value-format", "avro", "--value-schema", order]
    outcome = runnel("produce", name, *options, stdin=b'{"id": 0}\n' + text + b"\n")
    assert outcome.code == 1
    assert outcome.err.startswith("error: line 2: the value cannot be encoded: ")
    assert problem in outcome.err
    assert outcome.err.endswith("; records produced before it: 1\n")
    assert len(runnel.ok("consume", name).lines) == 1


def test_schemas_that_cannot_be_used(runnel, name, order, tmp_path):
    avro = ("--value-format", "avro")
    for arguments, code, expected in [
        (avro, 1, f"Subject '{name}-value' not found. (40401)"),
        ((*avro, "--value-schema", order, "--no-register"), 1, "not found"),
        ((*avro, "--value-schema", str(tmp_path / "none")), 1, "cannot read"),
        (("--value-format", "protobuf", "--value-schema", order), 1, "(42201)"),
        ((*avro, "--registry", "http://127.0.0.1:1"), 1, "no registry at http://127.0.0.1:1"),
        ((*avro, "--value-schema", order, "--value-version", "1"), 2, "are mutually exclusive"),
        ((*avro, "--value-message", "A"), 2, "--value-message requires --value-format protobuf"),
        (
            ("--value-subject", "s"),
            2,
            "--value-subject requires --value-format avro, protobuf or json-schema",
        ),
        (("--key-schema", "s"), 2, "--key-schema requires --key-format"),
        (("--value-format", "auto"), 2, "--value-format auto requires --json"),
        (("--value-format", "auto", "--json", "--value-subject", "s"), 2, "--value-subject requires"),
        ((*avro, "--value-schema", "-"), 2, "standard input has the records"),
        (("--value-format", "thrift"), 2, "thrift"),
    ]:
        outcome = runnel("produce", name, *arguments, stdin='{"id": 1}\n')
        assert (outcome.code, expected in outcome.err) == (code, True), outcome
        assert outcome.err.count("\n") == 1
    assert runnel.ok("consume", name).out == ""
    runnel.ok("schema", "register", f"{name}-value", order)
    outcome = runnel("produce", name, "{}", "--value-format", "json-schema")
    assert "values cannot be encoded: schema" in outcome.err and "is of type AVRO, not JSON" in outcome.err


def test_a_registry_that_is_not_there_is_an_error(runnel, runnel_session, name):
    sent(runnel_session, name, framed(1, b"\x02"))
    outcome = runnel("consume", name, "--value-format", "auto", "--registry", "http://127.0.0.1:1")
    assert (outcome.code, outcome.err.startswith("error: no registry at")) == (1, True)


def test_an_address_with_a_password_is_refused_and_not_printed(runnel, name):
    outcome = runnel(
        "consume", name, "--value-format", "avro", "--registry", "http://anna:secret@localhost:1"
    )
    assert outcome.code == 1
    assert "no user and password" in outcome.err
    assert "secret" not in outcome.err


def test_values_of_json_schemas_are_validated(runnel, name, tmp_path):
    file = tmp_path / "order.json"
    file.write_text(JSON_SCHEMA)
    options = ["--value-format", "json-schema", "--value-schema", str(file)]
    outcome = runnel("produce", name, '{"id": "x"}', *options)
    assert "at id: 'x' is not of type 'integer'" in outcome.err
    runnel.ok("produce", name, '{ "id":1 }', *options)
    assert runnel.ok("consume", name, "--value-format", "json-schema").lines == ['{"id":1}']
    assert runnel.ok("consume", name).out.encode()[5:] == b'{ "id":1 }\n'


def test_follow_and_schemas_that_are_fetched_once(runnel, runnel_session, name, order, monkeypatch):
    from runnel.client.schema_registry import SchemaRegistry

    runnel.ok("produce", name, *['{"id": 1}'] * 50, "--value-format", "avro", "--value-schema", order)
    fetched: list[int] = []
    by_id = SchemaRegistry.by_id

    def counted(registry: SchemaRegistry, schema_id: int) -> dict[str, Any]:
        fetched.append(schema_id)
        return by_id(registry, schema_id)

    monkeypatch.setattr(SchemaRegistry, "by_id", counted)
    assert len(runnel.ok("consume", name, "--value-format", "avro", "-f", "-n", "50").lines) == 50
    assert len(fetched) == 1


def test_schemas_that_are_registered_later_are_found(order, monkeypatch):
    from runnel.client.schema_registry import RegistryRefused, SchemaRegistry
    from runnel.registry.format import InvalidData
    from runnel.server.cli import formats
    from runnel.server.cli.schema_options import Format

    texts: dict[int, str] = {}

    def by_id(registry: SchemaRegistry, schema_id: int) -> dict[str, Any]:
        if schema_id not in texts:
            raise RegistryRefused(404, 40403, "Schema not found")
        return {"schema": texts[schema_id]}

    async def look() -> None:
        schemas = formats.Schemas(SchemaRegistry("http://127.0.0.1:1"))
        for _ in range(3):
            with pytest.raises(InvalidData) as unknown:
                await schemas.find(7, Format.AVRO)
            # An error that is raised again and again would keep the data of every record.
            depth, frame = 0, unknown.value.__traceback__
            while frame is not None:
                depth, frame = depth + 1, frame.tb_next
            assert depth == 2
        monkeypatch.setattr(formats, "MISSING_S", 0.0)
        schemas = formats.Schemas(SchemaRegistry("http://127.0.0.1:1"))
        with pytest.raises(InvalidData):
            await schemas.find(7, Format.AVRO)
        texts[7] = Path(order).read_text()
        assert (await schemas.find(7, Format.AVRO)).id == 7

    monkeypatch.setattr(SchemaRegistry, "by_id", by_id)
    asyncio.run(look())
