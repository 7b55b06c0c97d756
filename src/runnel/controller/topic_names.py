"""Validation of topic names."""

import re

from runnel.controller.image import MetadataImage
from runnel.controller.values import CLUSTER_METADATA
from runnel.model.errors import ApiError, ErrorCode
from runnel.model.limits import TOPIC_NAME_CHARACTERS_MAX

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    """Validate a topic name. Raises ApiError."""
    if not name:
        complaint = "the empty string is not allowed"
    elif name in (".", ".."):
        complaint = f"'{name}' is not allowed"
    elif len(name) > TOPIC_NAME_CHARACTERS_MAX:
        complaint = (
            f"the length of '{name}' is longer than the max allowed length {TOPIC_NAME_CHARACTERS_MAX}"
        )
    elif not _LEGAL.fullmatch(name):
        complaint = (
            f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
        )
    else:
        return
    raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {complaint}")


def check_new_topic_name(image: MetadataImage, name: str) -> None:
    """Validate the name of a new topic: unused, and distinct from others in metrics. Raises ApiError."""
    check_topic_name(name)
    if name == CLUSTER_METADATA:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")
    if name in image.topics:
        raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    others = image.colliding(name)
    if others:
        raise ApiError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {others[0]}"
        )
