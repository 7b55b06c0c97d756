"""Codecs of all formats."""

import subprocess
import sys

import pytest

from runnel.registry.codecs import parsed_codec
from runnel.registry.format import InvalidSchema


def test_unknown_format():
    with pytest.raises(InvalidSchema, match="the format THRIFT is not supported"):
        parsed_codec("THRIFT", "", ())


@pytest.mark.parametrize(("kind", "schema"), [("AVRO", '"long"'), ("JSON", "true")])
def test_only_the_format_that_is_used_is_imported(kind, schema):
    program = (
        "import sys\n"
        "import runnel.server.cli.formats\n"
        "from runnel.registry.codecs import parsed_codec\n"
        f"codec = parsed_codec({kind!r}, {schema!r}, ())\n"
        "codec.decode(b'2')\n"
        "unwanted = {'google.protobuf', 'jsonschema', 'starlette', 'runnel.gateway'}\n"
        "print(*(unwanted & set(sys.modules)))\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == []
