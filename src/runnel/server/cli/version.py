"""`runnel version`."""

from runnel.server.cli.options import Json


def version(as_json: Json = False) -> None:
    """Print the versions of Runnel and Python.

    Example: runnel version --json
    """
    import platform
    from importlib.metadata import version as installed_version

    from runnel.server.cli.output import print_fields, print_json

    facts = {
        "runnel": installed_version("runnel"),
        "python": platform.python_version(),
        "platform": platform.platform(terse=True),
    }
    if as_json:
        print_json(facts)
    else:
        print_fields(facts)
