"""What the registry counts, and that clients cannot make it count without end."""

import asyncio
from collections.abc import Awaitable, Callable

import httpx

from runnel.gateway.http.principals import Principals
from runnel.gateway.options import GatewayOptions
from runnel.gateway.registry.routes import RegistryApp
from runnel.observe.exposition import parse, render
from runnel.testing import Broker

VERSIONS = "/subjects/{subject}/versions"

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def read(app: RegistryApp) -> Samples:
    text = b"".join(render(app.metrics.collect())).decode()
    return {(name, frozenset(labels)): value for name, labels, value in parse(text)}


def value(samples: Samples, name: str, **labels: str) -> float | None:
    return samples.get((f"runnel_registry_{name}", frozenset(labels.items())))


def with_app(use: Callable[[RegistryApp, httpx.AsyncClient], Awaitable[None]]) -> None:
    async def run(bootstrap: str) -> None:
        options = GatewayOptions(bootstrap)
        principals = Principals(options)
        app = RegistryApp(options, principals)
        transport = httpx.ASGITransport(app=app)
        try:
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                await use(app, client)
        finally:
            await principals.close()
            app.close()

    with Broker() as broker:
        asyncio.run(run(broker.bootstrap_servers))


def test_requests_errors_and_what_is_registered():
    async def use(app: RegistryApp, client: httpx.AsyncClient) -> None:
        assert value(read(app), "subjects") is None
        for subject, schema in (("a", "int"), ("b", "int"), ("b", "long"), (":.c:d", "int")):
            response = await client.post(f"/subjects/{subject}/versions", json={"schema": f'"{schema}"'})
            assert response.status_code == 200
        assert (await client.post("/subjects/b/versions", json={"schema": '"int'})).status_code == 422
        assert (await client.get("/subjects/none/versions")).status_code == 404
        assert (await client.get("/v1/metadata/version")).status_code == 200

        samples = read(app)
        post = {"method": "POST", "route": VERSIONS}
        assert value(samples, "requests_total", **post, status="2xx") == 4
        assert value(samples, "requests_total", **post, status="4xx") == 1
        assert value(samples, "requests_total", method="GET", route=VERSIONS, status="4xx") == 1
        assert value(samples, "requests_total", method="GET", route="/v1/metadata", status="2xx") == 1
        assert value(samples, "errors_total", code="42201") == 1
        assert value(samples, "errors_total", code="40401") == 1
        assert value(samples, "request_seconds_count", **post) == 5
        assert 0 < (value(samples, "request_seconds_sum", **post) or 0) < 60
        assert value(samples, "subjects") == 3
        assert value(samples, "schemas") == 3

    with_app(use)


def test_clients_cannot_add_series():
    async def use(app: RegistryApp, client: httpx.AsyncClient) -> None:
        async def send(number: int) -> None:
            await client.get(f"/subjects/none-{number}/versions")
            await client.get(f"/subjects/unknown/{number}/x")
            await client.request(f"BREW{number}", "/subjects")
            await client.get(f"/v1/metadata/{number}")

        await send(0)
        before = read(app).keys()
        for number in range(1, 20):
            await send(number)

        samples = read(app)
        assert samples.keys() == before
        assert value(samples, "requests_total", method="other", route="other", status="4xx") == 40

    with_app(use)
