"""The master keys of encryption at rest, from a file or a command. No message contains a key."""

import os
import shlex
import subprocess
from base64 import b64decode
from typing import TYPE_CHECKING

from runnel.controller.config_broker_encryption import MASTER_KEY_COMMAND, MASTER_KEY_FILE
from runnel.controller.settings import Settings
from runnel.log.encryption import KEY_BYTES
from runnel.ports.files import Files
from runnel.server.layers import BadSettings
from runnel.server.permissions import check_secret_file

if TYPE_CHECKING:
    from runnel.disk.keyring import Keyring

COMMAND_TIMEOUT_S = 30
_HEX_CHARACTERS = 2 * KEY_BYTES


def read_master_keys(settings: Settings) -> list[bytes]:
    """The master keys, the current one first. Blocks. Raises BadSettings."""
    path, command = settings.text(MASTER_KEY_FILE), settings.text(MASTER_KEY_COMMAND)
    if path:
        return parse_master_keys(read_secret_file(path, MASTER_KEY_FILE), path)
    assert command
    return parse_master_keys(_run(command), f"the output of {MASTER_KEY_COMMAND}")


def new_keyring(keys: list[bytes], files: Files, folder: str) -> "Keyring":
    """The keyring of a data directory. Raises BadSettings if it cannot be used."""
    try:
        from runnel.disk.keyring import Keyring
    except ImportError as error:
        raise BadSettings(
            "encryption at rest needs the package cryptography: install runnel[security]"
        ) from error
    return Keyring(keys, files, folder)


def read_secret_file(path: str, setting: str) -> str:
    """The contents of a file that only its owner can read. Raises BadSettings."""
    try:
        with open(path, "rb") as file:
            check_secret_file(path, os.fstat(file.fileno()))
            return file.read().decode("ascii", errors="replace")
    except OSError as error:
        raise BadSettings(f"{setting}: cannot read {path}: {error.strerror}") from error


def parse_master_keys(text: str, source: str) -> list[bytes]:
    """The keys of a file; blank lines and those that begin with # are skipped. Raises BadSettings."""
    keys: list[bytes] = []
    for number, line in enumerate(text.splitlines(), 1):
        word = line.strip()
        if not word or word.startswith("#"):
            continue
        try:
            key = bytes.fromhex(word) if len(word) == _HEX_CHARACTERS else b64decode(word, validate=True)
        except ValueError:
            key = b""
        if len(key) != KEY_BYTES:
            raise BadSettings(
                f"{source}, line {number}: a master key is {KEY_BYTES} bytes in hexadecimal or Base64, "
                "such as `runnel storage random-key` prints"
            )
        keys.append(key)
    if not keys:
        raise BadSettings(f"{source} has no master key")
    return keys


def _run(command: str) -> str:
    try:
        done = subprocess.run(
            shlex.split(command),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=COMMAND_TIMEOUT_S,
            check=True,
        )
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a command line"
        raise BadSettings(f"{MASTER_KEY_COMMAND} could not be run: {reason}") from None
    except subprocess.TimeoutExpired:
        raise BadSettings(f"{MASTER_KEY_COMMAND} did not end within {COMMAND_TIMEOUT_S} seconds") from None
    except subprocess.CalledProcessError as error:
        raise BadSettings(f"{MASTER_KEY_COMMAND} failed with status {error.returncode}") from None
    return done.stdout.decode("ascii", errors="replace")
