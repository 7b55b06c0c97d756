"""Every API with the authorizer: what a client without an ACL receives, and which ACLs it needs."""

from copy import deepcopy
from typing import Any

import pytest

from runnel.broker.apis import handlers
from runnel.broker.apis.handlers import APIS, BROKER_APIS
from runnel.messages.registry import api
from runnel.security.acl import CLUSTER_NAME, Operation, ResourceType
from runnel.wire import encoded, fields_of
from tests.broker.authorized import CONNECTION, SETTINGS, Caller, prepare
from tests.broker.test_gates import TRANSACTIONAL_BATCH, codes
from tests.wire.samples import example

O = Operation  # noqa: E741 - a table is easier to read with short names
T, G, C, X = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID
CODES = {T: 29, G: 30, C: 31, X: 53}

OPEN = {17, 18, 36, 60}
TOKENS = {38, 39, 40, 41}
"""Their handlers decide, by the owner and the renewers of a token: `tests/controller/test_tokens.py`."""
LISTED = {16, 66}
"""What is not permitted is left out: `test_listings_show_what_may_be_described`."""

NEEDS: dict[int, list[tuple[Operation, ResourceType]]] = {
    0: [(O.WRITE, X), (O.WRITE, T)],
    1: [(O.READ, T)],
    2: [(O.DESCRIBE, T)],
    3: [(O.DESCRIBE, T)],
    8: [(O.READ, G), (O.READ, T)],
    9: [(O.DESCRIBE, G), (O.DESCRIBE, T)],
    10: [(O.DESCRIBE, G)],
    **{key: [(O.READ, G)] for key in (11, 12, 13, 14)},
    15: [(O.DESCRIBE, G)],
    19: [(O.CREATE, T)],
    20: [(O.DELETE, T)],
    21: [(O.DELETE, T)],
    22: [(O.WRITE, X)],
    23: [(O.DESCRIBE, T)],
    24: [(O.WRITE, X), (O.WRITE, T)],
    25: [(O.WRITE, X), (O.READ, G)],
    26: [(O.WRITE, X)],
    27: [(O.CLUSTER_ACTION, C)],
    28: [(O.WRITE, X), (O.READ, G), (O.READ, T)],
    29: [(O.DESCRIBE, C)],
    30: [(O.ALTER, C)],
    31: [(O.ALTER, C)],
    32: [(O.DESCRIBE_CONFIGS, T)],
    33: [(O.ALTER_CONFIGS, T)],
    35: [(O.DESCRIBE, C)],
    37: [(O.ALTER, T)],
    42: [(O.DELETE, G)],
    43: [(O.ALTER, C)],
    44: [(O.ALTER_CONFIGS, T)],
    45: [(O.ALTER, C)],
    46: [(O.DESCRIBE, C)],
    47: [(O.DELETE, G), (O.READ, T)],
    48: [(O.DESCRIBE_CONFIGS, C)],
    49: [(O.ALTER_CONFIGS, C)],
    50: [(O.DESCRIBE, C)],
    51: [(O.ALTER, C)],
    **{key: [(O.CLUSTER_ACTION, C)] for key in (52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 82)},
    55: [(O.DESCRIBE, C)],
    57: [(O.ALTER, C)],
    61: [(O.READ, T)],
    64: [(O.ALTER, C)],
    65: [(O.DESCRIBE, X)],
    68: [(O.READ, G), (O.DESCRIBE, T)],
    69: [(O.DESCRIBE, G)],
    74: [(O.DESCRIBE_CONFIGS, C)],
    75: [(O.DESCRIBE, T)],
    80: [(O.ALTER, C)],
    81: [(O.ALTER, C)],
}
"""The ACLs that permit all of a request; without the first of them, its code is in the response."""

VERSIONS = {0: 12, 1: 12, 3: 9, 8: 9, 9: 7, 20: 5, 24: 3}
"""Versions with names instead of ids of topics, and those of clients instead of brokers."""

ON_CONTROLLERS = {
    1: [(O.CLUSTER_ACTION, C)],
    60: [(O.ALTER, C)],
    29: [(O.DESCRIBE, C)],
    32: [(O.DESCRIBE_CONFIGS, T)],
    19: [(O.CREATE, T)],
}
"""What the listeners of controllers require of some APIs that brokers serve as well."""


def test_every_api_is_in_the_table():
    assert NEEDS.keys() | OPEN | TOKENS | LISTED == APIS.keys()


def full(api_key: int, version: int) -> Any:
    """A request with something in every array."""
    request = example(api(api_key).request, version, "full")
    if api_key == 0:
        request.acks = 1
        for topic in request.topic_data:
            for data in topic.partition_data:
                data.records = TRANSACTIONAL_BATCH
    elif api_key == 1:
        request.session_id, request.session_epoch = 0, -1
        request.replica_id = -1
        request.replica_state = None
    elif api_key == 3:
        request.allow_auto_topic_creation = False
    elif api_key == 10:
        request.key_type = 0
    elif api_key in (32, 33, 44):
        for resource in request.resources:
            resource.resource_type = 2
    return request


class Walk:
    """Requests of one API whose handler only notes what reaches it."""

    def __init__(self, world: Any, monkeypatch: pytest.MonkeyPatch, listener: str | None = None) -> None:
        self.acls = prepare(world)
        self.world = world
        self.handled: list[bytes] = []
        self._replaced: set[int] = set()
        self._listener = listener
        self._monkeypatch = monkeypatch

    async def ask(self, api_key: int, version: int, name: str = "alice") -> tuple[set[int], bool]:
        """(error codes in the response, did all of the request reach its handler?)."""
        request = full(api_key, version)
        before = encoded(deepcopy(request), version)
        self._replace(api_key)
        self.handled.clear()
        caller = Caller(
            self.world, name, self._listener or ("PLAINTEXT" if api_key in BROKER_APIS else "CONTROLLER")
        )
        response = await caller.ask(request, version)
        present = {each.name for each in fields_of(type(response)) if each.versions.covers(version)}
        found = set(codes(response)) - {0}
        if "error_code" in present:
            found |= {response.error_code} - {0}
        return found, self.handled == [before]

    def _replace(self, api_key: int) -> None:
        if api_key in self._replaced:
            return
        self._replaced.add(api_key)

        def handler(request: Any, ctx: Any) -> Any:
            if ctx.session.connection_id == CONNECTION:
                self.handled.append(encoded(request, ctx.api_version))
            return api(api_key).response()

        handlers.handler_of(api_key)
        self._monkeypatch.setitem(handlers._registered, api_key, handler)


async def check(walk: Walk, api_key: int, needs: list[tuple[Operation, ResourceType]]) -> None:
    version = VERSIONS.get(api_key, APIS[api_key].version_max)
    for missing in range(len(needs)):
        ids = []
        for index, (operation, kind) in enumerate(needs):
            if index != missing:
                name = CLUSTER_NAME if kind is C else "*"
                ids += await walk.acls.add(name, operation, resource_type=kind)
        found, is_whole = await walk.ask(api_key, version)
        assert not is_whole and found == {CODES[needs[missing][1]]}, (api_key, needs[missing], found)
        await walk.acls.remove(ids)
    ids = []
    for operation, kind in needs:
        ids += await walk.acls.add(CLUSTER_NAME if kind is C else "*", operation, resource_type=kind)
    found, is_whole = await walk.ask(api_key, version)
    assert is_whole and not found, (api_key, found)
    found, is_whole = await walk.ask(api_key, version, "bob")
    assert not is_whole and found, api_key
    await walk.acls.remove(ids)
    found, is_whole = await walk.ask(api_key, version, "root")
    assert is_whole and not found, api_key


def test_each_permission_of_each_api_is_necessary_and_all_are_sufficient(tell, monkeypatch):
    async def scenario(world: Any) -> None:
        walk = Walk(world, monkeypatch)
        for api_key, needs in NEEDS.items():
            await check(walk, api_key, needs)

    tell(scenario, SETTINGS)


def test_listeners_of_controllers_require_more(tell, monkeypatch):
    async def scenario(world: Any) -> None:
        walk = Walk(world, monkeypatch, "CONTROLLER")
        for api_key, needs in ON_CONTROLLERS.items():
            await check(walk, api_key, needs)

    tell(scenario, SETTINGS)


@pytest.mark.parametrize("api_key", sorted(OPEN))
def test_open_apis_need_nothing(tell, monkeypatch, api_key):
    async def scenario(world: Any) -> None:
        walk = Walk(world, monkeypatch)
        found, is_whole = await walk.ask(api_key, APIS[api_key].version_max)
        assert is_whole and not found

    tell(scenario, SETTINGS)
