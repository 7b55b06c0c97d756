"""meta.properties: to which node of which cluster a data directory belongs. The format is Kafka's.

version=1   cluster.id=AbC…   node.id=1   directory.id=XyZ…
"""

from runnel.disk.atomic import replace_file
from runnel.log.checkpoints import DamagedCheckpoint, decode_properties, encode_properties
from runnel.log.names import PROPERTIES
from runnel.model.ids import id_from_text, id_text
from runnel.ports.disk import BadDirectory, Identity
from runnel.ports.entropy import Entropy
from runnel.ports.files import Files

VERSIONS = ("0", "1")
"""In version 0 the node id is named broker.id."""

RESERVED_IDS = 100
"""Kafka gives the ids below this number other meanings, such as `lost` and `unassigned`."""


def load_identity(files: Files, folder: str, entropy: Entropy) -> Identity:
    """The identity of a data directory; one without a directory id receives it. Raises BadDirectory."""
    identity = read_identity(files, folder)
    if identity is None or not identity.directory_id:
        known = identity or Identity(b"")
        identity = Identity(new_id(entropy), known.cluster_id, known.node_id)
        store_identity(files, folder, identity)
    return identity


def read_identity(files: Files, folder: str) -> Identity | None:
    """The identity of a data directory, None if it has no meta.properties. Raises BadDirectory.

    The directory id is empty if there is none.
    """
    path = f"{folder}/{PROPERTIES}"
    try:
        properties = decode_properties(files.read(path))
        version = properties.get("version", "1")
        if version not in VERSIONS:
            raise BadDirectory(
                f"{path} has version {version}, which was written by a later release: use that"
            )
        directory_id = properties.get("directory.id")
        identity = Identity(
            id_from_text(directory_id) if directory_id else b"",
            properties.get("cluster.id", ""),
            int(properties.get("node.id", properties.get("broker.id", "-1"))),
        )
    except FileNotFoundError:
        return None
    except BadDirectory:
        raise
    except (ValueError, DamagedCheckpoint) as damage:
        raise BadDirectory(
            f"{path} is damaged ({damage}): restore it from a backup, or use another data directory"
        ) from damage
    if identity.directory_id and int.from_bytes(identity.directory_id) < RESERVED_IDS:
        raise BadDirectory(f"{path} has a reserved directory.id: replace it by another id")
    return identity


def store_identity(files: Files, folder: str, identity: Identity) -> None:
    """Write meta.properties; it is durable on return."""
    properties = {"version": "1", "directory.id": id_text(identity.directory_id)}
    if identity.cluster_id:
        properties["cluster.id"] = identity.cluster_id
    if identity.node_id >= 0:
        properties["node.id"] = str(identity.node_id)
    replace_file(files, folder, PROPERTIES, encode_properties(properties), sync=True)


def check_identity(identity: Identity, folder: str, cluster_id: str, node_id: int) -> None:
    """BadDirectory if the directory belongs to another node or cluster."""
    if identity.node_id not in (-1, node_id):
        raise BadDirectory(
            f"{folder} belongs to node {identity.node_id}, and this is node {node_id}: start it with "
            f"node.id={identity.node_id}, or choose another data directory"
        )
    if cluster_id and identity.cluster_id not in ("", cluster_id):
        raise BadDirectory(
            f"{folder} belongs to the cluster {identity.cluster_id}, and this node to {cluster_id}: correct "
            "cluster.id, or choose another data directory"
        )


def new_id(entropy: Entropy) -> bytes:
    """A random id that is not reserved, and whose printed form does not look like an option."""
    while True:
        raw = entropy.id_bytes()
        if int.from_bytes(raw) >= RESERVED_IDS and not id_text(raw).startswith("-"):
            return raw
