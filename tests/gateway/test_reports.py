"""Reports of pipelines are shown as they are, and nothing beside them."""

from pathlib import Path

from runnel.gateway.options import GatewayOptions
from runnel.pipelines.report.page import Page, Status
from runnel.pipelines.report.writing import PAGE, write_report
from runnel.testing import Broker
from tests.gateway.gateways import serving


def test_reports_are_listed_and_shown(broker: Broker, tmp_path: Path) -> None:
    folder = tmp_path / "reports"
    for name in ("audit-1", "a b&c"):
        write_report(folder / name, Page(f"Audit {name}", "", Status("good", "All is well")), {})
    (folder / "unfinished").mkdir()
    (folder / "escape").symlink_to(tmp_path)
    (tmp_path / PAGE).write_text("secret")
    with serving(GatewayOptions(broker.bootstrap_servers, reports=folder)) as visitor:
        page = visitor.content("/console/pipelines").text
        assert "audit-1" in page and "/console/pipelines/a%20b%26c" in page
        assert "unfinished" not in page and "escape" not in page
        shown = visitor.get("/console/pipelines/a%20b%26c")
        assert "Audit a b&amp;c" in shown.text and "All is well" in shown.text
        assert "sandbox" in shown.headers["content-security-policy"]
        for path in ("escape", "none", "..", "%2e%2e", "..%2F..%2Fetc", "unfinished"):
            assert visitor.get(f"/console/pipelines/{path}").status in (303, 307, 404)
