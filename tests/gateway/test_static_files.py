"""What a browser loads: vendored files are those of their packages, and small."""

import hashlib
import re
from importlib.resources import files

from runnel.gateway.console.static_files import NAMES, static_url
from tests.gateway.gateways import Visitor

FOLDER = files("runnel.gateway.console") / "static"
VENDORED_BYTES_MAX = 100_000


def test_vendored_files_are_unchanged_and_small() -> None:
    listed = (FOLDER / "vendor" / "VENDORED.md").read_text()
    hashes = dict(re.findall(r"^\| (\S+) \|.*\| ([0-9a-f]{64}) \|$", listed, re.MULTILINE))
    vendored = [name.partition("/")[2] for name in NAMES if name.startswith("vendor/")]
    assert set(hashes) == set(vendored)
    size = 0
    for name, expected in hashes.items():
        data = (FOLDER / "vendor" / name).read_bytes()
        assert hashlib.sha256(data).hexdigest() == expected
        size += len(data)
    assert size <= VENDORED_BYTES_MAX


def test_pages_have_no_inline_scripts_or_styles() -> None:
    for template in (files("runnel.gateway.console") / "templates").iterdir():
        text = template.read_text()
        assert not re.search(r"<script(?![^>]*\bsrc=)", text), template.name
        assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:|hx-on|hx-vals", text), template.name


def test_files_are_kept_by_browsers(visitor: Visitor) -> None:
    for name in NAMES:
        reply = visitor.get(static_url(name), Accept_Encoding="identity")
        assert reply.status == 200 and "immutable" in reply.headers["cache-control"]
        assert visitor.get(static_url(name), If_None_Match=reply.headers["etag"]).status == 304
