"""Images compared by what they know, not by the offset at which they learned it."""

from dataclasses import fields

from runnel.controller.image import MetadataImage


def same(one: MetadataImage, other: MetadataImage) -> bool:
    """Whether two images know the same, also in what they keep to find things by."""
    unimportant = {"version", "_states", "_names"}
    names = [field.name for field in fields(MetadataImage) if field.name not in unimportant]
    return all(getattr(one, name) == getattr(other, name) for name in names)
