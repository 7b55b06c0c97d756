"""`runnel schema …` against the registry of a gateway."""

import json

import pytest

from runnel.gateway.options import GatewayOptions
from runnel.server.cli import main
from runnel.testing import Broker
from tests.gateway.gateways import serving

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
NOTE = {"name": "note", "type": "string"}


@pytest.fixture
def url():
    with Broker() as broker, serving(GatewayOptions(broker.bootstrap_servers)) as visitor:
        yield visitor.origin


@pytest.fixture
def runnel(url, capsys, monkeypatch):
    monkeypatch.setenv("RUNNEL_REGISTRY", url)

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as end:
            main(["schema", *arguments])
        out = capsys.readouterr()
        return int(end.value.code or 0), out.out, out.err

    return run


def test_schemas_are_registered_listed_shown_checked_and_compared(runnel, tmp_path):
    first, second, broken = (tmp_path / name for name in ("first.avsc", "second.avsc", "broken.avsc"))
    first.write_text(json.dumps(ORDER))
    second.write_text(json.dumps({**ORDER, "fields": [*ORDER["fields"], {**NOTE, "default": ""}]}))
    broken.write_text(json.dumps({**ORDER, "fields": [*ORDER["fields"], NOTE]}))

    assert runnel("register", "orders-value", str(first)) == (0, "1\n", "")
    code, _, error = runnel("diff", "orders-value")
    assert (code, error) == (1, "error: orders-value has one version only\n")
    code, _, error = runnel("check", "orders-value", str(broken))
    assert code == 1
    assert "field note of Order is not written, and the reader has no default for it" in error
    assert runnel("check", "orders-value", str(second))[0] == 0
    assert runnel("register", "orders-value", str(second)) == (0, "2\n", "")
    assert runnel("list")[1].split() == ["SUBJECT", "VERSION", "ID", "TYPE", "orders-value", "2", "2", "AVRO"]
    assert json.loads(runnel("show", "orders-value", "--version", "1")[1]) == ORDER
    assert json.loads(runnel("show", "--id", "1")[1]) == ORDER
    shown = runnel("diff", "orders-value")[1]
    assert "--- orders-value version 1" in shown
    assert '+      "name": "note",' in shown
    assert json.loads(runnel("list", "--json")[1])[0]["subject"] == "orders-value"


def test_references(runnel, tmp_path):
    base, cart = tmp_path / "base.avsc", tmp_path / "cart.avsc"
    base.write_text(json.dumps(ORDER))
    fields = [{"name": "order", "type": "Order"}]
    cart.write_text(json.dumps({"type": "record", "name": "Cart", "fields": fields}))
    runnel("register", "base", str(base))

    code, out, _ = runnel("register", "cart", str(cart), "--reference", "Order=base:1", "--json")

    assert code == 0
    assert json.loads(out)["references"] == [{"name": "Order", "subject": "base", "version": 1}]
    assert runnel("register", "cart", str(cart), "--reference", "Order")[0] == 2


def test_errors_are_one_line(runnel, tmp_path):
    assert runnel("show", "nothing") == (1, "", "error: Subject 'nothing' not found. (40401)\n")
    assert runnel("show")[0] == 2
    assert runnel("register", "s", str(tmp_path / "missing.avsc"))[0] == 1
    assert runnel("list", "--registry", "ftp://x")[0] == 1
    assert runnel("list", "--registry", "http://127.0.0.1:1")[2].startswith("error: no registry at")
