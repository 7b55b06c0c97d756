"""The importer generates the same declarations as the curated files."""

import sys
from types import ModuleType

import pytest

from runnel.messages import registry
from tests.messages.upstream import declared, load
from tools.import_schema import declare, snake


@pytest.mark.parametrize("key", registry.API_NAMES, ids=lambda key: registry.API_NAMES[key])
def test_imported_declarations_equal_the_curated_ones(key: int, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("imported")
    monkeypatch.setitem(sys.modules, "imported", module)
    exec(declare(load("messages-4.3.0.json"), [registry.API_NAMES[key]]), module.__dict__)
    for ours in (registry.api(key).request, registry.api(key).response):
        imported = getattr(module, ours.__name__)
        assert (imported.api_key, imported.versions, imported.flexible_from) == (
            ours.api_key,
            ours.versions,
            ours.flexible_from,
        )
        for version in ours.versions:
            assert declared(imported, version) == declared(ours, version)


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("ThrottleTimeMs", "throttle_time_ms"),
        ("KRaftVersion", "kraft_version"),
        ("Enable2Pc", "enable_2pc"),
        ("V3AndBelowTopics", "v3_and_below_topics"),
        ("groupInstanceId", "group_instance_id"),
    ],
)
def test_names(name: str, ours: str) -> None:
    assert snake(name) == ours
