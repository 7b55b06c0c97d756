"""CRC-32C, the checksum of record batches and of our own small files.

Its package also imports a command line and importlib.metadata, which take a twentieth of a broker's start:
only the extension module in it is loaded.
"""

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec


def _load() -> Callable[..., int]:
    package = find_spec("crc32c")
    assert package is not None, "the package crc32c is not installed"
    extension = PathFinder.find_spec("_crc32c", package.submodule_search_locations)
    assert extension is not None and extension.loader is not None
    module = module_from_spec(extension)
    extension.loader.exec_module(module)
    function: Callable[..., int] = module.crc32c
    return function


crc32c = _load()
