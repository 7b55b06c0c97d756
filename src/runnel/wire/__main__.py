"""`python -m runnel.wire show Fetch 12`: print the codecs that are compiled for an API and version."""

import argparse
import importlib

from runnel.wire.compile_decode import decoder_source
from runnel.wire.compile_encode import encoder_source


def main() -> None:
    """Print the generated source of request and response, both directions."""
    parser = argparse.ArgumentParser(prog="python -m runnel.wire", description=__doc__)
    verbs = parser.add_subparsers(required=True)
    show = verbs.add_parser("show", help="print the compiled codecs of an API version")
    show.add_argument("api", help="API name or key: Fetch, 1")
    show.add_argument("version", type=int)
    arguments = parser.parse_args()
    # wire must not import messages; only this command does, by name.
    registry = importlib.import_module("runnel.messages.registry")
    try:
        api = registry.api_named(arguments.api)
    except KeyError:
        parser.error(f"unknown API {arguments.api!r}")
    if arguments.version not in api.request.versions:
        parser.error(f"{api.name} has versions {api.request.versions.start}-{api.request.versions.stop - 1}")
    for message in (api.request, api.response):
        for verb, source in (("decode", decoder_source), ("encode", encoder_source)):
            print(f"# {verb} {message.__name__} v{arguments.version}")
            print(source(message, arguments.version).text)


if __name__ == "__main__":
    main()
