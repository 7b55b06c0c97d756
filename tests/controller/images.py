"""Comparing images by content, without the version."""

from dataclasses import fields

from runnel.controller.image import MetadataImage


def same(one: MetadataImage, other: MetadataImage) -> bool:
    """Whether two images have the same content, including their lookup indexes."""
    unimportant = {"version", "idle_offsets", "offset", "_states", "_names", "_index", "_unindexed", "_token"}
    names = [field.name for field in fields(MetadataImage) if field.name not in unimportant]
    return all(getattr(one, name) == getattr(other, name) for name in names)
