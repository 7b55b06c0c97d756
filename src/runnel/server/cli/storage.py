"""`runnel storage …`: format data directories, as kafka-storage.sh does."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from runnel.server.cli.options import Json, Settings

if TYPE_CHECKING:
    from runnel.controller.settings import Settings as NodeSettings
    from runnel.raft.voters import Voters
    from runnel.schemas.metadata import UserScramCredentialRecord
    from runnel.server.roles import Roles
    from runnel.server.storage import Format

app = typer.Typer(help="Format and inspect data directories.", no_args_is_help=True)

Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        envvar="RUNNEL_CONFIG",
        help="The settings of the node: a server.properties of Kafka, or TOML.",
    ),
]


@app.callback()
def storage() -> None:
    """Format and inspect data directories."""


@app.command("random-uuid")
def random_uuid() -> None:
    """Print a random id, for a cluster or a directory.

    Example: runnel storage random-uuid
    """
    from runnel.disk.identity import new_id
    from runnel.model.ids import id_text
    from runnel.server.shells import SystemEntropy

    print(id_text(new_id(SystemEntropy())))


@app.command("random-key")
def random_key() -> None:
    """Print a random master key, for a file that encryption.master.key.file names.

    The file must not be open to other users: set umask 077 before it is created.

    Example: runnel storage random-key > master.key
    """
    import os

    from runnel.log.encryption import KEY_BYTES

    print(os.urandom(KEY_BYTES).hex())


@app.command("rotate-key")
def rotate_key(config: Config = None, settings: Settings = None) -> None:
    """Encrypt the keys of all segments of a stopped node with the first of its master keys.

    A running node does so automatically when the first line of encryption.master.key.file has changed.
    Afterwards the other master keys may be removed from the file.

    Example: runnel storage rotate-key --config server.properties
    """
    from runnel.controller.config_broker_encryption import MASTER_KEY_COMMAND, MASTER_KEY_FILE
    from runnel.disk.os_files import OsFiles
    from runnel.log.names import LOCK
    from runnel.server.cli.output import CommandError, print_error
    from runnel.server.master_keys import new_keyring, read_master_keys

    known = _known(config, settings)
    folder, _ = _node(config, settings)
    files = OsFiles()
    if not files.exists(folder):
        raise CommandError(f"{folder} does not exist")
    if not known.text(MASTER_KEY_FILE) and not known.text(MASTER_KEY_COMMAND):
        raise CommandError(f"this node has no master key: set {MASTER_KEY_FILE} or {MASTER_KEY_COMMAND}")
    keyring = new_keyring(read_master_keys(known), files, folder)
    try:
        lock = files.lock(f"{folder}/{LOCK}")
    except BlockingIOError:
        raise CommandError(f"a broker is using {folder}: it rotates its keys itself") from None
    from runnel.disk.key_rotation import rotate_stopped

    keyring.check()
    problems: list[str] = []
    count = rotate_stopped(files, folder, keyring, problems.append)
    del lock
    for problem in problems:
        print_error(problem)
    print(f"{count} key{'s' * (count != 1)} encrypted with master key {keyring.current.id}")
    if problems:
        raise typer.Exit(1)


@app.command("info")
def info(config: Config = None, settings: Settings = None, as_json: Json = False) -> None:
    """Print to which cluster and node a data directory belongs. Exits with status 1 if it is not formatted.

    Example: runnel storage info --config server.properties
    """
    import os

    from runnel.disk.identity import read_identity
    from runnel.disk.os_files import OsFiles
    from runnel.model.ids import id_text
    from runnel.server.cli.output import CommandError, print_fields, print_json

    folder, _ = _node(config, settings)
    if not os.path.isdir(folder):
        raise CommandError(f"{folder} does not exist: `runnel serve` and `runnel storage format` create it")
    identity = read_identity(OsFiles(), folder)
    if identity is None:
        raise CommandError(f"{folder} is not formatted: `runnel serve` and `runnel storage format` do that")
    fields = {
        "directory": folder,
        "cluster.id": identity.cluster_id or None,
        "node.id": identity.node_id if identity.node_id >= 0 else None,
        "directory.id": id_text(identity.directory_id),
    }
    if as_json:
        print_json(fields)
    else:
        print_fields({name: "-" if value is None else value for name, value in fields.items()})


ClusterId = Annotated[
    str, typer.Option("--cluster-id", "-t", help="The id of the cluster.", show_default=False)
]
Standalone = Annotated[
    bool, typer.Option("--standalone", "-s", help="This controller is the only voter of a new quorum.")
]
InitialControllers = Annotated[
    str | None,
    typer.Option(
        "--initial-controllers",
        "-I",
        metavar="LIST",
        help="Voters of a new quorum: id@host:port:directory, separated by commas; the same on all voters.",
    ),
]
NoInitialControllers = Annotated[
    bool, typer.Option("--no-initial-controllers", "-N", help="This node joins an existing quorum.")
]
ReleaseVersion = Annotated[
    str | None,
    typer.Option("--release-version", "-r", metavar="X.Y", help="Use the features of a Kafka release."),
]
Features = Annotated[
    list[str] | None,
    typer.Option("--feature", "-f", metavar="NAME=LEVEL", help="The level of a feature. Repeatable."),
]
AddScram = Annotated[
    list[str] | None,
    typer.Option(
        "--add-scram",
        "-S",
        metavar="CREDENTIAL",
        help="A user of the new cluster, as in the example. Repeatable.",
    ),
]
IgnoreFormatted = Annotated[
    bool, typer.Option("--ignore-formatted", "-g", help="Do nothing if the directory is formatted.")
]


@app.command("format")
def format_(
    cluster_id: ClusterId,
    config: Config = None,
    settings: Settings = None,
    standalone: Standalone = False,
    initial_controllers: InitialControllers = None,
    no_initial_controllers: NoInitialControllers = False,
    release_version: ReleaseVersion = None,
    features: Features = None,
    add_scram: AddScram = None,
    ignore_formatted: IgnoreFormatted = False,
) -> None:
    r"""Format the data directory of a node: it states to which cluster and node it belongs.

    This is optional: a node formats an empty directory when it starts. Only the first voters of a quorum
    without controller.quorum.voters have to be formatted.

    Example: runnel storage format --cluster-id MvDxzVmcRsaTz33bUuRU6A --config server.properties --standalone

    Example: runnel storage format -t MvDxzVmcRsaTz33bUuRU6A -S 'SCRAM-SHA-256=\[name=alice,password=tea]'
    """
    from runnel.disk.identity import new_id
    from runnel.disk.os_files import OsFiles
    from runnel.server.cli.output import CommandError
    from runnel.server.shells import SystemClock, SystemEntropy
    from runnel.server.storage import AlreadyFormatted, Format, format_directory

    if standalone + no_initial_controllers + (initial_controllers is not None) > 1:
        raise typer.BadParameter(
            "only one of --standalone, --initial-controllers and --no-initial-controllers may be given"
        )
    folder, roles = _node(config, settings)
    own_id = new_id(SystemEntropy())
    voters = _voters(roles, own_id, standalone, initial_controllers)
    if voters is None and not no_initial_controllers and _needs_voters(roles):
        raise CommandError(
            "controller.quorum.voters is not set on this controller: add --standalone, --initial-controllers "
            "or --no-initial-controllers"
        )
    levels = _levels(release_version, features)
    plan = Format(cluster_id, roles.node_id, levels, voters, _users(add_scram or [], levels))
    try:
        format_directory(OsFiles(), folder, plan, own_id, SystemClock().now_ms())
    except AlreadyFormatted:
        if not ignore_formatted:
            raise CommandError(f"{folder} is already formatted; --ignore-formatted accepts that") from None
        print("All of the log directories are already formatted.")
        return
    print(f"Formatting {_kind(plan)} {folder} with metadata.version {plan.levels['metadata.version']}.")


def _node(config: Path | None, settings: list[str] | None) -> "tuple[str, Roles]":
    """The data directory and the roles of a node."""
    from runnel.server.roles import data_directory, roles_of

    known = _known(config, settings)
    return data_directory(known), roles_of(known)


def _known(config: Path | None, settings: list[str] | None) -> "NodeSettings":
    """The settings of a node."""
    import os

    from runnel.controller.settings import Settings as NodeSettings
    from runnel.server.cli.serve import DATA_DIR_DEFAULT
    from runnel.server.layers import static_settings

    static = static_settings(config, os.environ, settings or [])
    if "log.dirs" not in static and "log.dir" not in static:
        static["log.dirs"] = DATA_DIR_DEFAULT
    return NodeSettings(static)


def _needs_voters(roles: "Roles") -> bool:
    return roles.is_controller and not roles.is_alone and not roles.voters


def _voters(
    roles: "Roles", directory_id: bytes, standalone: bool, initial_controllers: str | None
) -> "Voters | None":
    from runnel.controller.values import Endpoint
    from runnel.server.cli.output import CommandError
    from runnel.server.storage import parse_initial_controllers
    from runnel.server.storage import standalone as one_voter

    if not standalone and initial_controllers is None:
        return None
    if roles.is_alone or not roles.is_controller:
        raise CommandError("only a node whose process.roles has controller can be a voter")
    if roles.voters:
        raise CommandError(
            "controller.quorum.voters is set: the quorum is static, and the first voters cannot be specified"
        )
    listener = roles.controller_listener_names[0]
    if initial_controllers is not None:
        return parse_initial_controllers(initial_controllers, listener)
    address = roles.endpoint(roles.controller_listeners[0], lambda: "localhost")
    return one_voter(roles.node_id, directory_id, [Endpoint(listener, address.host, address.port)])


def _levels(release: str | None, features: list[str] | None) -> dict[str, int]:
    from runnel.controller.features import METADATA_LEVEL, METADATA_VERSION, SUPPORTED_FEATURES
    from runnel.controller.releases import RELEASES, first_levels
    from runnel.server.cli.options import parse_settings

    given = parse_settings(features)
    if release is not None and release not in RELEASES:
        raise typer.BadParameter(
            f"{release!r} is not a release; known are {', '.join(RELEASES)}", param_hint="--release-version"
        )
    for name, text in given.items():
        low, high = SUPPORTED_FEATURES.get(name, (0, -1))
        if not text.isdecimal() or not low <= int(text) <= high:
            known = ", ".join(f"{feature}={a}-{b}" for feature, (a, b) in SUPPORTED_FEATURES.items())
            raise typer.BadParameter(
                f"{name}={text} is not supported; known are {known}", param_hint="--feature"
            )
    level = int(given.pop(METADATA_VERSION, RELEASES[release] if release else METADATA_LEVEL))
    given.pop("kraft.version", None)
    return {**first_levels(level), **{name: int(text) for name, text in given.items()}}


def _users(options: list[str], levels: dict[str, int]) -> "tuple[UserScramCredentialRecord, ...]":
    import os

    from runnel.controller.features import METADATA_VERSION, SCRAM_LEVEL
    from runnel.schemas.metadata import UserScramCredentialRecord
    from runnel.security.scram import SCRAM_MECHANISM_CODES, new_salt
    from runnel.security.scram_options import InvalidScramOption, read_scram_option

    if options and levels[METADATA_VERSION] < SCRAM_LEVEL:
        raise typer.BadParameter(
            f"SCRAM needs metadata.version {SCRAM_LEVEL} or newer", param_hint="--add-scram"
        )
    records = {}
    for text in options:
        try:
            user = read_scram_option(text, new_salt(os.urandom(32)))
        except InvalidScramOption as error:
            raise typer.BadParameter(str(error), param_hint="--add-scram") from None
        code, verifier = SCRAM_MECHANISM_CODES[user.mechanism], user.verifier
        if (user.name, code) in records:
            raise typer.BadParameter(f"{user.name} has two credentials", param_hint="--add-scram")
        records[user.name, code] = UserScramCredentialRecord(
            user.name, code, verifier.salt, verifier.stored_key, verifier.server_key, verifier.iterations
        )
    return tuple(records.values())


def _kind(plan: "Format") -> str:
    if plan.voters is None:
        return "metadata directory"
    is_voter = plan.voters.get(plan.node_id) is not None
    return "dynamic metadata voter directory" if is_voter else "dynamic metadata directory"
