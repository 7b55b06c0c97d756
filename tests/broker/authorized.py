"""A broker with an authorizer, and clients of any principal that send requests through its pipeline."""

import asyncio
from collections.abc import Iterable
from typing import Any

from runnel.broker.runtime.acl_authorizer import AclAuthorizer
from runnel.broker.runtime.pipeline import Pipeline
from runnel.messages.registry import api
from runnel.ports.service import Reply, Session
from runnel.schemas.metadata import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from runnel.security.acl import Operation, PatternType, PermissionType, ResourceType
from runnel.security.principal import USER, Principal
from runnel.wire import Request, decode
from runnel.wire.frame import has_flexible_header, read_response_header, request_frame

SETTINGS = {"authorizer.class.name": "acl", "super.users": "User:root;User:ANONYMOUS"}
CONNECTION = 7_777
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = PermissionType.ALLOW, PermissionType.DENY


class Caller:
    """A connection of one principal."""

    def __init__(self, world: Any, name: str, listener: str = "PLAINTEXT", host: str = "127.0.0.1") -> None:
        self.pipeline: Pipeline = world.pipeline
        self.session = Session(host, 1, listener, CONNECTION, Principal(USER, name))

    async def ask(self, request: Request, version: int) -> Any:
        """The response; None if the connection is closed, or nothing is answered."""
        frame = memoryview(bytearray(b"".join(request_frame(request, version, 3, "test"))))
        replies: list[Reply] = []
        try:
            self.pipeline.serve(frame, 4, len(frame), len(frame), self.session, replies, 1)
        finally:
            self.pipeline.finish_turn()
        if not replies:
            return None
        (reply,) = replies
        async with asyncio.timeout(20):
            while not reply.is_filled:
                await asyncio.sleep(0.001)
        if not reply.parts:
            return None
        response = api(request.api_key).response
        answer = memoryview(b"".join(reply.parts))[4:]  # type: ignore[arg-type]
        _, position = read_response_header(answer, has_flexible_header(response, version))
        return decode(response, version, answer, position)


def acl_record(
    number: int,
    name: str,
    operation: Operation,
    *,
    to: str = "User:alice",
    resource_type: ResourceType = ResourceType.TOPIC,
    pattern: PatternType = LITERAL,
    permission: PermissionType = ALLOW,
    host: str = "*",
) -> AccessControlEntryRecord:
    """The record of an ACL."""
    return AccessControlEntryRecord(
        number.to_bytes(16), resource_type, name, pattern, to, host, operation, permission
    )


class Acls:
    """Adds and removes ACLs through the metadata log."""

    def __init__(self, world: Any) -> None:
        self._world = world
        self._count = 0

    async def add(self, name: str, *operations: Operation, **options: Any) -> list[bytes]:
        """The ids of new ACLs."""
        records = []
        for operation in operations:
            self._count += 1
            records.append(acl_record(self._count, name, operation, **options))
        await self._world.broker.metadata.submit(records)
        return [record.id for record in records]

    async def remove(self, ids: Iterable[bytes]) -> None:
        await self._world.broker.metadata.submit([RemoveAccessControlEntryRecord(each) for each in ids])


def prepare(world: Any) -> Acls:
    """Let callers use the pipeline of a broker."""
    world.broker.controller_listeners = frozenset({"CONTROLLER"})
    world.pipeline = Pipeline(world.broker)
    assert isinstance(world.broker.gates.authorizer, AclAuthorizer)
    return Acls(world)
