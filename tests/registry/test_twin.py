"""Ids, versions and deletions against an obvious twin, under random requests."""

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from runnel.registry import lookup
from runnel.registry.configuration import set_config
from runnel.registry.deletion import delete_subject, delete_version
from runnel.registry.errors import RegistryError
from tests.registry.world import World

SUBJECTS = st.sampled_from(["a", "b", ":.c:a"])
SCHEMAS = st.sampled_from(["int", "long", "string", "bytes", "boolean"])
NUMBERS = st.integers(1, 4)


@dataclass
class Twin:
    """All versions that exist, as a list, and the highest id by context."""

    versions: list[list] = field(default_factory=list)
    """[subject, version, id, schema, is deleted]"""
    highest: dict[str, int] = field(default_factory=dict)

    def of(self, subject, is_deleted=None):
        return [one for one in self.versions if one[0] == subject and is_deleted in (None, one[4])]

    def register(self, subject, schema):
        context = ".c" if subject.startswith(":") else "."
        for one in self.of(subject, is_deleted=False):
            if one[3] == schema:
                return one[2], one[1]
        known = [
            one[2]
            for one in self.versions
            if one[3] == schema and one[0].startswith(":") == (context == ".c")
        ]
        schema_id = known[0] if known else self.highest.get(context, 0) + 1
        self.highest[context] = max(schema_id, self.highest.get(context, 0))
        number = max((one[1] for one in self.of(subject)), default=0) + 1
        self.versions = [one for one in self.versions if not (one[0] == subject and one[3] == schema)]
        self.versions.append([subject, number, schema_id, schema, False])
        return schema_id, number

    def delete(self, subject, numbers, permanent):
        chosen = [one for one in self.of(subject) if one[1] in numbers]
        for one in chosen:
            if permanent:
                self.versions.remove(one)
            else:
                one[4] = True


class Requests(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.world = World()
        self.world.do(set_config, None, {"compatibility": "NONE"})
        self.twin = Twin()

    @rule(subject=SUBJECTS, schema=SCHEMAS)
    def register(self, subject, schema):
        found = self.world.register(subject, schema)
        assert (found["id"], found["version"]) == self.twin.register(subject, schema)

    @rule(subject=SUBJECTS, permanent=st.booleans())
    def delete_subject(self, subject, permanent):
        live, deleted = (self.twin.of(subject, is_deleted=one) for one in (False, True))
        may = bool(deleted) and not live if permanent else bool(live)
        try:
            numbers = self.world.do(delete_subject, subject, permanent=permanent)
        except RegistryError as error:
            assert not may, error.message
        else:
            assert may
            assert numbers == sorted(one[1] for one in (deleted if permanent else live))
            self.twin.delete(subject, numbers, permanent)

    @rule(subject=SUBJECTS, number=NUMBERS, permanent=st.booleans())
    def delete_version(self, subject, number, permanent):
        may = any(one[1] == number for one in self.twin.of(subject, is_deleted=permanent))
        try:
            self.world.do(delete_version, subject, str(number), permanent=permanent)
        except RegistryError as error:
            assert not may, error.message
        else:
            assert may
            self.twin.delete(subject, [number], permanent)

    @rule()
    def restart(self):
        self.world = self.world.restarted()

    @invariant()
    def all_is_the_same(self):
        state = self.world.state
        found = [
            [one.subject, one.version, one.id, one.content.text.strip('"'), one.is_deleted]
            for one in lookup.schemas(state, deleted=True)
        ]
        assert found == sorted(self.twin.versions)
        for subject, _, schema_id, schema, _ in self.twin.versions:
            assert lookup.by_id(state, schema_id, subject).content.text.strip('"') == schema


TestRequests = Requests.TestCase
TestRequests.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
