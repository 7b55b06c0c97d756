"""The commands of the controller transcripts.

    broker N [rack=]                          register a broker
    fence N                                   fence a broker
    create [trial] NAME[:PARTITIONS[:COPIES]] [KEY=VALUE …] [assign=0:1+2,1:2+1] [; NAME …]
    delete NAME|@NAME …                       by name, or by the id of the topic with that name
    grow [trial] NAME:COUNT [assign=1,2]
    set [trial] RESOURCE KEY=VALUE -KEY +KEY=WORD ~KEY=WORD …     set, delete, append, subtract
    replace [trial] RESOURCE KEY=VALUE …
    show RESOURCE [KEY …]
    quota [trial] TYPE=NAME … : KEY=VALUE -KEY …      a NAME of - is the default
    quotas [strict] [TYPE=NAME|TYPE=-|TYPE=* …]
    scram [+USER/MECHANISM/ITERATIONS] [-USER/MECHANISM] …
    users [USER …]
    feature [v=] [kind=] [voters=1,2] NAME=LEVEL …
    move TOPIC-N:1+2 | TOPIC-N:stop …         · moves · elect TOPIC-N …|all [unclean]
    pages LIMIT [TOPIC …]

A resource is topic/NAME, broker/N, broker/ (all), group/NAME, metrics/NAME. Records are printed first.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import Any

from runnel.controller.config_changes import decide_alter_configs, decide_incremental_alter_configs
from runnel.controller.describe_configs import describe_configs
from runnel.controller.describe_topics import describe_topic_partitions
from runnel.controller.elections import elect_leaders
from runnel.controller.feature_changes import Quorum, decide_update_features
from runnel.controller.features import SUPPORTED_FEATURES
from runnel.controller.image import MetadataImage
from runnel.controller.quotas import decide_alter_client_quotas, describe_quotas
from runnel.controller.reassignments import decide_reassignments, list_reassignments
from runnel.controller.result import ControllerResult
from runnel.controller.scram import decide_alter_scram_credentials, describe_scram_credentials
from runnel.controller.settings import Settings
from runnel.controller.snapshot import records_of
from runnel.controller.steps import finish
from runnel.controller.topic_changes import (
    Randomness,
    decide_create_partitions,
    decide_create_topics,
    decide_delete_topics,
)
from runnel.messages import alter_client_quotas as quotas
from runnel.messages import alter_configs, incremental_alter_configs
from runnel.messages import alter_partition_reassignments as moves
from runnel.messages import alter_user_scram_credentials as scram
from runnel.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from runnel.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from runnel.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from runnel.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from runnel.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from runnel.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from runnel.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from runnel.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from runnel.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from runnel.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from runnel.model.errors import ApiError, ErrorCode
from runnel.schemas.metadata import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    MetadataRecord,
    RegisterBrokerRecord,
)
from runnel.wire import Struct, fields_of
from tests.controller.images import same

RESOURCES = {"topic": 2, "broker": 4, "logger": 8, "metrics": 16, "group": 32}
OPERATIONS = {"-": 1, "+": 2, "~": 3}
NODE = 1


class Commands:
    """Runs transcript commands against an image."""

    def __init__(self, first: list[MetadataRecord] | None = None) -> None:
        self.image = MetadataImage()
        self.settings = Settings()
        self.ids = (bytes([number]) * 16 for number in count(1))
        self.batches: list[list[MetadataRecord]] = []
        self.carry_out(first or [_registration(NODE, None)])

    def play(self, command: str) -> list[str]:
        verb, *words = command.split()
        try:
            return list(getattr(self, f"play_{verb}")(words))
        except ApiError as error:
            return [f"refused {error.error.name}: {error}"]

    def carry_out(self, records: list[MetadataRecord]) -> None:
        """Replay, and check that a snapshot taken here produces an equal image."""
        self.batches.append(records)
        self.image.replay_batch(records, self.image.version + len(records))
        copy = MetadataImage()
        copy.replay_batch(records_of(self.image), self.image.version)
        assert same(copy, self.image)
        if any(type(record) is ConfigRecord for record in records):
            self.settings.apply_dynamic(self.image.broker_configs(None), self.image.broker_configs(NODE))

    def decided(
        self, outcome: ControllerResult[Any], answers: Callable[[Any], Iterable[str]]
    ) -> Iterator[str]:
        before = self.image.copy()
        yield from shortened([shown(record) for record in outcome.records])
        assert same(before, self.image), "computing a result must not change the image"
        self.carry_out(outcome.records)
        yield from answers(outcome.response)

    def play_broker(self, words: list[str]) -> Iterator[str]:
        named = dict(word.split("=") for word in words[1:])
        self.carry_out([_registration(int(words[0]), named.get("rack"))])
        yield from ()

    def play_fence(self, words: list[str]) -> Iterator[str]:
        self.carry_out([BrokerRegistrationChangeRecord(int(words[0]), fenced=1)])
        yield from ()

    def play_create(self, words: list[str]) -> Iterator[str]:
        trial, words = _trial(words)
        topics = [_new_topic(part.split()) for part in " ".join(words).split(";")]
        request = CreateTopicsRequest(topics, validate_only=trial)
        outcome = decide_create_topics(self.image, self.settings, request, Randomness(self.ids))
        yield from self.decided(
            outcome,
            lambda response: [
                f"{t.name} {t.num_partitions}x{t.replication_factor}"
                if not t.error_code
                else _refused(t.name, t)
                for t in response.topics
            ],
        )

    def play_delete(self, words: list[str]) -> Iterator[str]:
        topics = [
            DeleteTopicState(
                None, self.image.topics[word[1:]].id if word[1:] in self.image.topics else b"?" * 16
            )
            if word.startswith("@")
            else DeleteTopicState(word)
            for word in words
        ]
        outcome = decide_delete_topics(self.image, self.settings, DeleteTopicsRequest(topics))
        yield from self.decided(
            outcome, lambda response: [_outcome(str(t.name), t) for t in response.responses]
        )

    def play_grow(self, words: list[str]) -> Iterator[str]:
        trial, words = _trial(words)
        name, _, total = words[0].rpartition(":")
        assignments = None
        if len(words) > 1:
            lists = words[1].removeprefix("assign=").split(",")
            assignments = [CreatePartitionsAssignment(numbers(part)) for part in lists]
        topic = CreatePartitionsTopic(name, int(total), assignments)
        request = CreatePartitionsRequest([topic], validate_only=trial)
        outcome = decide_create_partitions(self.image, request, Randomness(self.ids))
        yield from self.decided(outcome, lambda response: [_outcome(t.name, t) for t in response.results])

    def play_set(self, words: list[str]) -> Iterator[str]:
        trial, (resource, *changes) = _trial(words)
        configs = []
        for change in changes:
            operation = OPERATIONS.get(change[0], 0)
            name, equals, value = change.removeprefix(change[0] if operation else "").partition("=")
            configs.append(
                incremental_alter_configs.AlterableConfig(name, operation, value if equals else None)
            )
        asked = incremental_alter_configs.AlterConfigsResource(*_resource(resource), configs)
        request = incremental_alter_configs.IncrementalAlterConfigsRequest([asked], trial)
        outcome = decide_incremental_alter_configs(self.image, self.settings, request)
        yield from self.decided(outcome, lambda response: [_outcome(resource, r) for r in response.responses])

    def play_replace(self, words: list[str]) -> Iterator[str]:
        trial, (resource, *pairs) = _trial(words)
        configs = [alter_configs.AlterableConfig(*pair.split("=", 1)) for pair in pairs]
        asked = alter_configs.AlterConfigsResource(*_resource(resource), configs)
        request = alter_configs.AlterConfigsRequest([asked], trial)
        outcome = decide_alter_configs(self.image, self.settings, request)
        yield from self.decided(outcome, lambda response: [_outcome(resource, r) for r in response.responses])

    def play_show(self, words: list[str]) -> Iterator[str]:
        asked = DescribeConfigsResource(*_resource(words[0]), words[1:] or None)
        request = DescribeConfigsRequest([asked], include_synonyms=True)
        (result,) = describe_configs(self.image, self.settings, NODE, request).results
        if result.error_code:
            yield _refused(words[0], result)
        for entry in result.configs:
            synonyms = " < ".join(f"{s.name}={s.value} ({s.source})" for s in entry.synonyms)
            yield f"{entry.name}={entry.value} source={entry.config_source} from {synonyms or 'nowhere'}"

    def play_quota(self, words: list[str]) -> Iterator[str]:
        trial, words = _trial(words)
        colon = words.index(":")
        entity = [quotas.EntityData(*_name_pair(word)) for word in words[:colon]]
        operations = [
            quotas.OpData(word[1:], 0.0, True)
            if word.startswith("-")
            else quotas.OpData(word.partition("=")[0], float(word.partition("=")[2]))
            for word in words[colon + 1 :]
        ]
        request = quotas.AlterClientQuotasRequest([quotas.EntryData(entity, operations)], trial)
        outcome = decide_alter_client_quotas(self.image, request)
        yield from self.decided(
            outcome, lambda response: [_outcome("quota", entry) for entry in response.entries]
        )

    def play_quotas(self, words: list[str]) -> Iterator[str]:
        strict = words[:1] == ["strict"]
        components = []
        for word in words[strict:]:
            kind, name = _name_pair(word)
            match = 2 if name == "*" else 1 if name is None else 0
            components.append(ComponentData(kind, match, name if match == 0 else None))
        response = describe_quotas(self.image, DescribeClientQuotasRequest(components, strict))
        for entry in response.entries or ():
            entity = " ".join(f"{part.entity_type}={part.entity_name or '-'}" for part in entry.entity)
            yield f"{entity}: {' '.join(f'{value.key}={value.value}' for value in entry.values)}"

    def play_scram(self, words: list[str]) -> Iterator[str]:
        request = scram.AlterUserScramCredentialsRequest()
        for word in words:
            user, mechanism, *iterations = word[1:].split("/")
            if word.startswith("-"):
                request.deletions.append(scram.ScramCredentialDeletion(user, int(mechanism)))
            else:
                request.upsertions.append(
                    scram.ScramCredentialUpsertion(user, int(mechanism), int(iterations[0]), b"salt", b"pw")
                )
        outcome = decide_alter_scram_credentials(self.image, request)
        yield from self.decided(outcome, lambda response: [_outcome(r.user, r) for r in response.results])

    def play_users(self, words: list[str]) -> Iterator[str]:
        request = DescribeUserScramCredentialsRequest([UserName(word) for word in words] or None)
        for result in describe_scram_credentials(self.image, request).results:
            infos = " ".join(f"{info.mechanism}/{info.iterations}" for info in result.credential_infos)
            yield _refused(result.user, result) if result.error_code else f"{result.user} {infos}"

    def play_feature(self, words: list[str]) -> Iterator[str]:
        named = dict(word.split("=") for word in words)
        version, kind = int(named.pop("v", "1")), int(named.pop("kind", "1"))
        voters = [int(voter) for voter in named.pop("voters", "").split(",") if voter]
        updates = [
            FeatureUpdateKey(name, int(level), upgrade_type=kind, allow_downgrade=kind > 1)
            for name, level in named.items()
        ]
        outcome = decide_update_features(
            self.image, self.settings, UpdateFeaturesRequest(60000, updates), version, Quorum(NODE, voters)
        )
        yield from self.decided(outcome, lambda response: [_outcome(r.feature, r) for r in response.results])

    def play_move(self, words: list[str]) -> Iterator[str]:
        request = moves.AlterPartitionReassignmentsRequest()
        for word in words:
            partition, _, replicas = word.partition(":")
            topic, _, index = partition.rpartition("-")
            target = None if replicas == "stop" else numbers(replicas)
            wish = moves.ReassignablePartition(int(index), target)
            request.topics.append(moves.ReassignableTopic(topic, [wish]))
        outcome = decide_reassignments(self.image, self.settings, request)
        yield from self.decided(
            outcome,
            lambda response: [
                _outcome(f"{topic.name}-{part.partition_index}", part)
                for topic in response.responses
                for part in topic.partitions
            ],
        )

    def play_moves(self, words: list[str]) -> Iterator[str]:
        for topic in list_reassignments(self.image, ListPartitionReassignmentsRequest()).topics:
            for part in topic.partitions:
                yield (
                    f"{topic.name}-{part.partition_index} {part.replicas} "
                    f"adding {part.adding_replicas} removing {part.removing_replicas}"
                )

    def play_elect(self, words: list[str]) -> Iterator[str]:
        partitions = [word.rpartition("-") for word in words if word not in ("all", "unclean")]
        wishes = [TopicPartitions(topic, [int(index)]) for topic, _, index in partitions]
        request = ElectLeadersRequest(int("unclean" in words), None if "all" in words else wishes)
        written: list[MetadataRecord] = []

        def carry_out(records: list[MetadataRecord]) -> MetadataImage:
            written.extend(records)
            if records:
                self.carry_out(records)
            return self.image

        response = finish(elect_leaders(self.image, self.settings, request), carry_out)
        yield from shortened([shown(record) for record in written])
        for topic in response.replica_election_results:
            for part in topic.partition_result:
                yield _outcome(f"{topic.topic}-{part.partition_id}", part)

    def play_pages(self, words: list[str]) -> Iterator[str]:
        request = DescribeTopicPartitionsRequest([TopicRequest(name) for name in words[1:]], int(words[0]))
        while True:
            response = describe_topic_partitions(self.image, request, 2000, 0)
            shown = [
                f"{topic.name}[{','.join(str(part.partition_index) for part in topic.partitions)}]"
                if not topic.error_code
                else f"{topic.name}: {ErrorCode.from_code(topic.error_code).name}"
                for topic in response.topics
            ]
            yield " ".join(shown) or "nothing"
            request.cursor = response.next_cursor
            if request.cursor is None:
                return


def _registration(node_id: int, rack: str | None) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=node_id,
        incarnation_id=bytes([node_id]) * 16,
        end_points=[BrokerEndpoint("PLAINTEXT", "localhost", 9090 + node_id)],
        features=[BrokerFeature(name, *levels) for name, levels in SUPPORTED_FEATURES.items()],
        rack=rack,
        fenced=False,
        log_dirs=[bytes([100 + node_id]) * 16],
    )


def _trial(words: list[str]) -> tuple[bool, list[str]]:
    return (True, words[1:]) if words[0] == "trial" else (False, words)


def numbers(text: str) -> list[int]:
    return [int(word) for word in text.split("+") if word]


def _resource(text: str) -> tuple[int, str]:
    kind, _, name = text.partition("/")
    return RESOURCES.get(kind, 99), name


def _name_pair(word: str) -> tuple[str, str | None]:
    kind, _, name = word.partition("=")
    return kind, None if name == "-" else name


def _new_topic(words: list[str]) -> CreatableTopic:
    name, partitions, copies = [*words[0].split(":"), "-1", "-1"][:3]
    topic = CreatableTopic(name, int(partitions), int(copies))
    for word in words[1:]:
        key, equals, value = word.partition("=")
        if key == "assign":
            for part in value.split(","):
                index, _, replicas = part.partition(":")
                topic.assignments.append(CreatableReplicaAssignment(int(index), numbers(replicas)))
        else:
            topic.configs.append(CreatableTopicConfig(key, value if equals else None))
    return topic


def _refused(what: str, answer: Any) -> str:
    return f"{what}: {ErrorCode.from_code(answer.error_code).name}: {answer.error_message}"


def _outcome(what: str, answer: Any) -> str:
    return _refused(what, answer) if answer.error_code else f"{what} ok"


def shown(record: MetadataRecord) -> str:
    kind = type(record).__name__.removesuffix("Record")
    parts = []
    for field in fields_of(type(record)):
        value = getattr(record, field.name)
        if value != field.default and (value not in ([], None, b"") or field.default is None):
            parts.append(f"{field.name}={_value(value)}")
    return f"+ {kind} {' '.join(parts)}"


def _value(value: Any) -> str:
    if isinstance(value, (bytes, memoryview)):
        return bytes(value).hex()[:4]
    if isinstance(value, list):
        return f"[{' '.join(_value(item) for item in value)}]"
    if isinstance(value, Struct):
        return "/".join(str(getattr(value, field.name)) for field in fields_of(type(value)))
    return str(value)


def shortened(lines: list[str]) -> list[str]:
    return lines if len(lines) <= 8 else [*lines[:3], f"… {len(lines) - 4} more", lines[-1]]
