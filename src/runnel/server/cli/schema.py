"""`runnel schema …`: schemas of a registry."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from runnel.server.cli.options import Json
from runnel.server.cli.schema_options import REGISTRY_DEFAULT, registry_option, user_option

if TYPE_CHECKING:
    from runnel.client.schema_registry import SchemaRegistry

app = typer.Typer(help="List, show, register, check and compare schemas of a registry.", no_args_is_help=True)

TYPES = {".avsc": "AVRO", ".json": "JSON", ".proto": "PROTOBUF"}

Registry = Annotated[str, registry_option()]
Login = Annotated[str | None, user_option()]
Subject = Annotated[str, typer.Argument(help="The subject, such as orders-value.")]
Text = Annotated[
    Path, typer.Argument(help="The schema: .avsc, .json or .proto; - reads standard input.", metavar="FILE")
]
Type = Annotated[
    str | None,
    typer.Option("--type", metavar="TYPE", help="AVRO, JSON or PROTOBUF. Default: by the file's name."),
]
References = Annotated[
    list[str] | None,
    typer.Option(
        "--reference",
        metavar="NAME=SUBJECT:VERSION",
        help="A schema that this one refers to. Repeatable.",
    ),
]


@app.command("list")
def list_schemas(
    prefix: Annotated[str | None, typer.Option("--prefix", help="Only subjects with this prefix.")] = None,
    deleted: Annotated[bool, typer.Option("--deleted", help="Include soft-deleted subjects.")] = False,
    as_json: Json = False,
    registry: Registry = REGISTRY_DEFAULT,
    user: Login = None,
) -> None:
    """List subjects with their latest versions.

    Example: runnel schema list --prefix orders
    """
    from runnel.server.cli.output import print_json, print_table

    found = _connect(registry, user).latest_schemas(prefix=prefix, deleted=deleted)
    if as_json:
        print_json(found)
        return
    rows = [(one["subject"], one["version"], one["id"], one.get("schemaType", "AVRO")) for one in found]
    print_table(("subject", "version", "id", "type"), rows, empty="no schemas")


@app.command("show")
def show(
    subject: Annotated[str | None, typer.Argument(help="The subject, unless --id is given.")] = None,
    version: Annotated[str, typer.Option("--version", help="A number, or latest.")] = "latest",
    schema_id: Annotated[int | None, typer.Option("--id", help="The id of a schema.", min=1)] = None,
    as_json: Json = False,
    registry: Registry = REGISTRY_DEFAULT,
    user: Login = None,
) -> None:
    """Print a schema.

    Example: runnel schema show orders-value --version 2

    Example: runnel schema show --id 17
    """
    from runnel.server.cli.output import print_json

    if (subject is None) == (schema_id is None):
        raise typer.BadParameter("name a subject, or an id with --id")
    client = _connect(registry, user)
    found = client.by_id(schema_id) if schema_id is not None else client.version(str(subject), version)
    if as_json:
        print_json(found)
    else:
        print(_pretty(found))


@app.command("register")
def register(
    subject: Subject,
    file: Text,
    kind: Type = None,
    references: References = None,
    normalize: Annotated[bool, typer.Option("--normalize", help="Store the normalized text.")] = False,
    as_json: Json = False,
    registry: Registry = REGISTRY_DEFAULT,
    user: Login = None,
) -> None:
    """Register a schema as the newest version of a subject; prints its id.

    Example: runnel schema register orders-value order.avsc

    Example: runnel schema register cart-value cart.avsc --reference shop.Order=orders-value:1
    """
    from runnel.server.cli.output import print_info, print_json

    schema = _request(file, kind, references)
    found = _connect(registry, user).register(subject, schema, normalize=normalize)
    if as_json:
        print_json(found)
        return
    print(found["id"])
    if "version" in found:
        print_info(f"version {found['version']} of {subject}")


@app.command("check")
def check(
    subject: Subject,
    file: Text,
    version: Annotated[
        str | None, typer.Option("--version", help="Compare with this version only; a number, or latest.")
    ] = None,
    kind: Type = None,
    references: References = None,
    registry: Registry = REGISTRY_DEFAULT,
    user: Login = None,
) -> None:
    """Check whether a schema could be registered; exit status 1 and the reasons if it could not.

    Example: runnel schema check orders-value order.avsc
    """
    from runnel.server.cli.output import CommandError

    found = _connect(registry, user).incompatibilities(subject, _request(file, kind, references), version)
    if found:
        reasons = "\n".join(f"  {one}" for one in found)
        raise CommandError(f"{file} is not compatible with {subject}:\n{reasons}")
    print(f"{file} is compatible with {subject}")


@app.command("diff")
def diff(
    subject: Subject,
    old: Annotated[str | None, typer.Argument(help="The older version. Default: the last but one.")] = None,
    new: Annotated[str, typer.Argument(help="The newer version.")] = "latest",
    registry: Registry = REGISTRY_DEFAULT,
    user: Login = None,
) -> None:
    """Print the differences between two versions of a subject.

    Example: runnel schema diff orders-value

    Example: runnel schema diff orders-value 1 3
    """
    from difflib import unified_diff

    from runnel.server.cli.output import CommandError

    client = _connect(registry, user)
    if old is None:
        numbers = client.versions(subject)
        if len(numbers) < 2:
            raise CommandError(f"{subject} has one version only")
        old = str(numbers[-2])
    before, after = client.version(subject, old), client.version(subject, new)
    old_name, new_name = (f"{subject} version {one['version']}" for one in (before, after))
    old_lines, new_lines = (_pretty(one).splitlines() for one in (before, after))
    for line in unified_diff(old_lines, new_lines, old_name, new_name, lineterm=""):
        print(line)


def _connect(url: str, user: str | None) -> "SchemaRegistry":
    from runnel.client.schema_registry import SchemaRegistry

    return SchemaRegistry(url, user)


def read_schema(file: Path) -> str:
    """The text of a file, or of standard input."""
    import sys

    from runnel.server.cli.output import CommandError

    try:
        return sys.stdin.read() if str(file) == "-" else file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"cannot read {file}: {getattr(error, 'strerror', None) or error}") from None


def _request(file: Path, kind: str | None, references: list[str] | None) -> dict[str, Any]:
    text = read_schema(file)
    request: dict[str, Any] = {"schema": text, "schemaType": (kind or TYPES.get(file.suffix, "AVRO")).upper()}
    if references:
        request["references"] = [_reference(one) for one in references]
    return request


def _reference(text: str) -> dict[str, Any]:
    name, equals, target = text.partition("=")
    subject, colon, version = target.rpartition(":")
    if not (name and equals and subject and colon and version.isdecimal()):
        raise typer.BadParameter(f"{text!r} is not NAME=SUBJECT:VERSION", param_hint="--reference")
    return {"name": name, "subject": subject, "version": int(version)}


def _pretty(found: dict[str, Any]) -> str:
    """The text of a schema, indented if it is JSON."""
    import json

    text = str(found["schema"])
    if found.get("schemaType", "AVRO") == "PROTOBUF":
        return text
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except ValueError:
        return text
