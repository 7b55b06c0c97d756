"""Permissions of the files of a node: its data is for its own user only."""

import os
import stat

from runnel.server.layers import BadSettings

UMASK = 0o077
"""What a process of `runnel serve` creates is for its user only."""

_OPEN_TO_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_OPEN_TO_GROUP_OF_ROOT = stat.S_IWGRP | stat.S_IXGRP | stat.S_IRWXO


def check_secret_file(path: str, status: os.stat_result) -> None:
    """BadSettings if others than the owner have access to a file with a secret.

    The group may read a file of root, as where a secret is mounted for the group of a service.
    """
    if is_exposed(status):
        mode = stat.S_IMODE(status.st_mode)
        raise BadSettings(f"{path} is open to other users (mode {mode:04o}): run chmod 600 on it")


def is_exposed(status: os.stat_result) -> bool:
    """Whether others than the owner, and the group of a file of root, have access to a regular file."""
    forbidden = _OPEN_TO_GROUP_OF_ROOT if status.st_uid == 0 else _OPEN_TO_OTHERS
    return stat.S_ISREG(status.st_mode) and bool(status.st_mode & forbidden)


def open_folder(path: str) -> str | None:
    """What is wrong with the permissions of a data directory, or None."""
    try:
        mode = stat.S_IMODE(os.stat(path).st_mode)
    except FileNotFoundError:
        return None
    if not mode & _OPEN_TO_OTHERS:
        return None
    return f"{path} is open to other users (mode {mode:04o}): run chmod 700 on it"
