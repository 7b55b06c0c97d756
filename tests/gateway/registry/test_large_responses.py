"""Responses with many large schemas: their clients decide how many they ask for."""

from tests.gateway.registry.calls import call, register


def test_a_page_has_a_size(registry, monkeypatch):
    for subject in ("a", "b"):
        register(registry, f"page-{subject}", '"string"')
    path = "/schemas?subjectPrefix=page-"
    monkeypatch.setattr("runnel.gateway.registry.handlers.PAGE_BYTES_MAX", 10)
    status, error = call(registry, "GET", path)
    assert (status, error["error_code"]) == (413, 413) and "limit" in error["message"]
    assert len(call(registry, "GET", f"{path}&limit=1")[1]) == 1
