"""Apache Kafka's command-line tools against a cluster: each check is an exit code and an expected text."""

import json
import re
import secrets
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from tools.conformance.result import SuiteResult
from tools.conformance.secured import ADMIN, USERS
from tools.conformance.target import Target
from tools.kafka.commands import VERSION, tool
from tools.settings import SCRAM_LOGIN, write_properties

NODE = "1"
TIMEOUT_S = 120.0
BRIEF_S = 25.0
"""For tools that run until they are stopped."""


@dataclass(slots=True)
class Checks:
    """Runs tools one after the other against one cluster, and records whether each did its work."""

    target: Target
    folder: Path
    only: str
    result: SuiteResult
    run: str = field(default_factory=lambda: secrets.token_hex(3))
    """Part of all names: the broker may have served another run."""

    @property
    def bootstrap(self) -> str:
        return self.target.bootstrap

    def server(self, user: str = ADMIN, **properties: str) -> list[object]:
        """The address, and the properties of a client for it."""
        address: list[object] = ["--bootstrap-server", self.bootstrap]
        if self.target.security is None:
            return address
        path = self.folder / f"{secrets.token_hex(4)}.properties"
        wanted = {**self.target.security.properties(user), **properties}
        return [*address, "--command-config", write_properties(path, wanted)]

    @property
    def replication_factor(self) -> int:
        return self.target.replication_factor

    @property
    def brokers(self) -> str:
        return ",".join(map(str, self.target.brokers))

    @property
    def topic(self) -> str:
        return f"tools-{self.run}"

    def check(
        self,
        name: str,
        expected: str,
        script: str,
        *arguments: object,
        stdin: str = "",
        timeout_s: float = TIMEOUT_S,
        any_exit_code: bool = False,
    ) -> str:
        """Run a tool; it passes if it prints the expected pattern and ends with 0. Returns its output."""
        # Subcommands take the address behind them, and one tool calls it by another name.
        is_addressed = "--bootstrap-server" in arguments or "--broker-list" in arguments[:1]
        server = [] if is_addressed else self.server()
        if not re.search(self.only, name):
            return ""
        printed, exit_code = _run(tool(script, *server, *arguments), stdin, timeout_s)
        is_passed = (any_exit_code or exit_code == 0) and re.search(expected, printed) is not None
        self.result.record(name, is_passed)
        if not is_passed:
            print(f"    exit code {exit_code}, expected {expected!r}: {printed.strip()[-300:]}", flush=True)
        return printed

    def file(self, name: str, content: object) -> Path:
        path = self.folder / name
        path.write_text(json.dumps(content))
        return path


def _run(command: list[str], stdin: str, timeout_s: float) -> tuple[str, int]:
    """What a command printed, and its exit code."""
    try:
        done = subprocess.run(
            command,
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        return done.stdout, done.returncode
    except subprocess.TimeoutExpired as expired:
        return (expired.stdout or b"").decode(errors="replace"), -1


def run(target: Target, folder: Path, only: str = "") -> SuiteResult:
    """All checks; the order matters, as later ones use the topics and groups of earlier ones."""
    description = f"the command-line tools of Apache Kafka {VERSION}, one check per use"
    if target.security is not None:
        description += ", over SASL_SSL with `--command-config` (the copier has no such option)"
    result = SuiteResult("Apache Kafka's tools", description)
    folder.mkdir(parents=True, exist_ok=True)
    checks = Checks(target, folder, only, result)
    for section in (_cluster, _topics, _configs, _users_and_quotas, _produce, _consume, _groups):
        section(checks)
    for section in (_verifiable, _transactions, _partitions, _share_groups, _security, _others):
        section(checks)
    return result


def _cluster(checks: Checks) -> None:
    quorum = "kafka-metadata-quorum"
    checks.check("api-versions", r"Produce\(0\)", "kafka-broker-api-versions")
    server = checks.server()
    checks.check("cluster-id", "Cluster ID", "kafka-cluster", "cluster-id", *server)
    checks.check("list-endpoints", "127|PORT|ID", "kafka-cluster", "list-endpoints", *server)
    checks.check("features", "metadata.version", "kafka-features", "describe")
    checks.check("quorum-status", "LeaderId", quorum, "describe", "--status")
    checks.check("quorum-replication", "Leader", quorum, "describe", "--replication")


def _topics(checks: Checks) -> None:
    topic, topics = ["--topic", checks.topic], "kafka-topics"
    new = ["--create", *topic, "--partitions", 3]
    settings = ["--replication-factor", checks.replication_factor, "--config", "retention.ms=3600000"]
    checks.check("topic-create", "Created topic", topics, *new, *settings)
    checks.check("topic-create-existing", "already exists", topics, *new, any_exit_code=True)
    described = "PartitionCount: 3.*retention.ms=3600000"
    checks.check("topic-describe", described, topics, "--describe", *topic)
    checks.check("topic-alter-partitions", "", topics, "--alter", *topic, "--partitions", 6)
    checks.check("topic-describe-altered", "PartitionCount: 6", topics, "--describe", *topic)
    checks.check("topic-list", checks.topic, topics, "--list")
    checks.check("topic-unavailable", "", topics, "--describe", "--unavailable-partitions")


def _configs(checks: Checks) -> None:
    configs = "kafka-configs"
    topic = ["--entity-type", "topics", "--entity-name", checks.topic]
    broker = ["--entity-type", "brokers"]
    sizes = "max.message.bytes=2000000,segment.bytes=1073741824"
    alter = ["--alter", *topic, "--add-config"]
    checks.check("config-alter", "Completed updating", configs, *alter, sizes)
    checks.check("config-describe", "max.message.bytes=2000000", configs, "--describe", *topic)
    unknown = "Unknown topic config|Invalid"
    checks.check("config-unknown", unknown, configs, *alter, "nonsense=1", any_exit_code=True)
    delete = ["--alter", *topic, "--delete-config", "max.message.bytes"]
    checks.check("config-delete", "Completed", configs, *delete)
    one = ["--describe", *broker, "--entity-name", NODE, "--all"]
    checks.check("config-broker", "log.retention", configs, *one)
    every = ["--alter", *broker, "--entity-default", "--add-config", "log.cleaner.backoff.ms=15001"]
    checks.check("config-broker-dynamic", "Completed", configs, *every)


def _users_and_quotas(checks: Checks) -> None:
    configs = "kafka-configs"
    user = ["--entity-type", "users", "--entity-name", f"user-{checks.run}"]
    client = ["--entity-type", "clients", "--entity-name", f"client-{checks.run}"]
    group = ["--entity-type", "groups", "--entity-name", f"group-{checks.run}"]
    password = "SCRAM-SHA-256=[iterations=4096,password=pw]"
    checks.check("scram-add", "Completed", configs, "--alter", *user, "--add-config", password)
    checks.check("scram-describe", "SCRAM-SHA-256", configs, "--describe", *user)
    rate = "producer_byte_rate=1048576"
    checks.check("quota-add", "Completed", configs, "--alter", *client, "--add-config", rate)
    checks.check("quota-describe", rate, configs, "--describe", *client)
    session = "consumer.session.timeout.ms=50000"
    checks.check("group-config", "Completed", configs, "--alter", *group, "--add-config", session)
    rule = ["--allow-principal", f"User:user-{checks.run}", "--operation", "Read", "--topic", checks.topic]
    checks.check("acl-add", "Adding ACLs|Current ACLs", "kafka-acls", "--add", *rule)
    checks.check("acl-list", f"user-{checks.run}", "kafka-acls", "--list", "--topic", checks.topic)
    checks.check("acl-remove", "", "kafka-acls", "--remove", "--force", "--topic", checks.topic)


def _produce(checks: Checks) -> None:
    topic, perf = ["--topic", checks.topic, "--throughput", -1], "kafka-producer-perf-test"
    properties = ["--command-property", "acks=all", "compression.type=lz4"]
    load = [*topic, "--num-records", 20000, "--record-size", 200]
    checks.check("produce-perf", "20000 records sent", perf, *load, *properties)
    load = [*topic, "--num-records", 5000, "--record-size", 200, "--transaction-duration-ms", 100]
    checks.check("produce-perf-transactions", "5000 records sent", perf, *load)
    keyed = ["--reader-property", "parse.key=true", "--reader-property", "key.separator=:"]
    lines = "".join(f"k{number}:v{number}\n" for number in range(1, 51))
    console = ["--topic", checks.topic, *keyed]
    checks.check("console-produce", "", "kafka-console-producer", *console, stdin=lines)


def _consume(checks: Checks) -> None:
    topic, offsets = ["--topic", checks.topic], "kafka-get-offsets"
    perf = [*topic, "--num-records", 20000, "--timeout", 20000]
    checks.check("consume-perf", "[0-9], ", "kafka-consumer-perf-test", *perf)
    checks.check("get-offsets", f"{checks.topic}:0:", offsets, *topic)
    checks.check("get-offsets-earliest", f"{checks.topic}:0:", offsets, *topic, "--time", "earliest")
    console = [*topic, "--from-beginning", "--max-messages", 10, "--timeout-ms", 20000, "--group"]
    ten, name = "Processed a total of 10", "kafka-console-consumer"
    checks.check("console-consume", ten, name, *console, f"classic-{checks.run}")
    protocol = ["--command-property", "group.protocol=consumer"]
    checks.check("console-consume-848", ten, name, *console, f"consumer-{checks.run}", *protocol)


def _groups(checks: Checks) -> None:
    name, groups = f"classic-{checks.run}", "kafka-consumer-groups"
    group, topic = ["--group", name], ["--topic", checks.topic]
    checks.check("groups-list", name, "kafka-groups", "--list")
    checks.check("group-describe", name, groups, "--describe", *group)
    checks.check("group-state", "Empty", groups, "--describe", *group, "--state")
    reset = ["--reset-offsets", *group, *topic, "--execute"]
    checks.check("group-reset", checks.topic, groups, *reset, "--to-earliest")
    checks.check("group-reset-shift", checks.topic, groups, *reset, "--shift-by", 5)
    checks.check("group-delete-offsets", checks.topic, groups, "--delete-offsets", *group, *topic)
    checks.check("group-delete", "successful", groups, "--delete", *group)


def _verifiable(checks: Checks) -> None:
    topic = ["--topic", checks.topic, "--max-messages"]
    acked = 'tool_data.*"acked":500'
    checks.check("verifiable-producer", acked, "kafka-verifiable-producer", *topic, 500, "--acks", -1)
    consumer = "kafka-verifiable-consumer"
    reading = [*topic, 400, "--reset-policy", "earliest", "--group-id"]
    classic, newer = [f"verify-{checks.run}"], [f"verify-848-{checks.run}", "--group-protocol", "consumer"]
    for name, group in (("verifiable-consumer", classic), ("verifiable-consumer-848", newer)):
        checks.check(
            name, "records_consumed", consumer, *reading, *group, timeout_s=BRIEF_S, any_exit_code=True
        )


def _transactions(checks: Checks) -> None:
    output, transactional_id = f"copy-{checks.topic}", f"copier-{checks.run}"
    new = ["--create", "--topic", output, "--partitions", 1]
    replication = ["--replication-factor", checks.replication_factor]
    checks.check("copier-topic", "Created", "kafka-topics", *new, *replication)
    source = [
        "--broker-list",
        _address_for_copier(checks),
        "--input-topic",
        checks.topic,
        "--input-partition",
        0,
    ]
    target = ["--input-partition", 0, "--output-topic", output, "--consumer-group", f"copier-{checks.run}"]
    sizes = ["--max-messages", 200, "--transaction-size", 50, "--enable-random-aborts"]
    copier = [*source, *target, *sizes, "--transactional-id", transactional_id]
    name = "transactional-message-copier"
    checks.check("transaction-copier", '"totalProcessed"', name, *copier, any_exit_code=True)
    transactions = "kafka-transactions"
    checks.check("transaction-list", "TransactionalId", transactions, "list")
    one = ["describe", "--transactional-id", transactional_id]
    checks.check("transaction-describe", transactional_id, transactions, *one)
    producers = ["describe-producers", "--topic", output, "--partition", 0]
    checks.check("transaction-producers", "ProducerId", transactions, *producers)
    checks.check("transaction-hanging", "", transactions, "find-hanging", "--broker-id", NODE)


def _address_for_copier(checks: Checks) -> str:
    """The copier takes no properties: a secured broker permits to anonymous clients what it does."""
    security = checks.target.security
    if security is None:
        return checks.bootstrap
    acls = ["--add", "--allow-principal", "User:ANONYMOUS"]
    source = ["--consumer", "--topic", checks.topic, "--group", f"copier-{checks.run}"]
    checks.check("acl-add-consumer", "operation=READ", "kafka-acls", *acls, *source)
    output = ["--topic", f"copy-{checks.topic}", "--transactional-id", f"copier-{checks.run}"]
    checks.check("acl-add-producer", "operation=WRITE", "kafka-acls", *acls, "--producer", *output)
    return security.bootstrap("PLAINTEXT")


def _partitions(checks: Checks) -> None:
    until = {"partitions": [{"topic": checks.topic, "partition": 0, "offset": 5}], "version": 1}
    file = ["--offset-json-file", checks.file("delete.json", until)]
    checks.check("delete-records", "low_watermark: 5", "kafka-delete-records", *file)
    directories = ["--describe", "--topic-list", checks.topic]
    checks.check("log-dirs", '"logDirs"', "kafka-log-dirs", *directories)
    election = ["--election-type", "preferred", "--topic", checks.topic, "--partition", 0]
    elected = "Valid replica already elected|Successfully completed"
    checks.check("leader-election", elected, "kafka-leader-election", *election)

    reassign = "kafka-reassign-partitions"
    topics = checks.file("topics.json", {"topics": [{"topic": checks.topic}], "version": 1})
    generate = ["--generate", "--topics-to-move-json-file", topics, "--broker-list", checks.brokers]
    printed = checks.check("reassign-generate", "Proposed partition", reassign, *generate)
    plan = checks.folder / "plan.json"
    plan.write_text(printed.rpartition("Proposed partition")[2].strip().rpartition("\n")[2])
    file = ["--reassignment-json-file", plan]
    checks.check("reassign-execute", "Successfully started", reassign, "--execute", *file)
    checks.check("reassign-verify", "complete", reassign, "--verify", *file)
    checks.check("reassign-list", "No partition|Current", reassign, "--list")


def _share_groups(checks: Checks) -> None:
    group, topic = f"share-{checks.run}", ["--topic", checks.topic]
    entity = ["--entity-type", "groups", "--entity-name", group]
    reset = ["--alter", *entity, "--add-config", "share.auto.offset.reset=earliest"]
    checks.check("share-config", "Completed", "kafka-configs", *reset)
    console = [*topic, "--group", group, "--max-messages", 10, "--timeout-ms", 25000]
    checks.check("share-consume", "Processed a total of 10", "kafka-console-share-consumer", *console)
    checks.check("share-groups", group, "kafka-share-groups", "--list")
    checks.check("share-describe", group, "kafka-share-groups", "--describe", "--group", group)
    perf = [*topic, "--group", f"share-perf-{checks.run}", "--num-records", 1, "--timeout", 15000]
    checks.check("share-perf", "[0-9], ", "kafka-share-consumer-perf-test", *perf)


def _security(checks: Checks) -> None:
    """What needs SASL: delegation tokens, and clients that are refused."""
    if checks.target.security is None:
        return
    tokens, topic = "kafka-delegation-tokens", ["--topic", checks.topic]
    new = ["--create", "--max-life-time-period", -1, "--renewer-principal", f"User:{ADMIN}"]
    printed = checks.check("token-create", f"User:{ADMIN}", tokens, *new)
    found = re.search(rf"^(\S{{22}})\s+(\S+)\s+User:{ADMIN}", printed, re.MULTILINE)
    token_id, hmac = found.groups() if found else ("", "")
    owned = ["--describe", "--owner-principal", f"User:{ADMIN}"]
    checks.check("token-describe", re.escape(token_id), tokens, *owned)
    checks.check("token-renew", "expiry", tokens, "--renew", "--renew-time-period", -1, "--hmac", hmac)
    login = f'{SCRAM_LOGIN} username="{token_id}" password="{hmac}" tokenauth="true";'
    with_token = checks.server(**{"sasl.jaas.config": login})
    checks.check("token-use", "PartitionCount", "kafka-topics", *with_token, "--describe", *topic)
    checks.check("token-expire", "expiry", tokens, "--expire", "--expiry-time-period", -1, "--hmac", hmac)
    refused = "SaslAuthenticationException"
    topics = "kafka-topics"
    checks.check("token-expired", refused, topics, *with_token, "--list", any_exit_code=True)
    wrong = checks.server(**{"sasl.jaas.config": f'{SCRAM_LOGIN} username="{ADMIN}" password="wrong";'})
    checks.check("wrong-password", refused, topics, *wrong, "--list", any_exit_code=True)
    other = [*checks.server(USERS[1]), *topic]
    denied, name = "TopicAuthorizationException", "kafka-console-producer"
    checks.check("denied", denied, name, *other, stdin="value\n", any_exit_code=True)


def _others(checks: Checks) -> None:
    name, metrics = f"metrics-{checks.run}", "kafka-client-metrics"
    alter = ["--alter", "--name", name, "--metrics", "org.apache.kafka.producer.", "--interval", 30000]
    checks.check("client-metrics-alter", "Altered", metrics, *alter)
    checks.check("client-metrics-describe", name, metrics, "--describe", "--name", name)
    latency = ["--topic", f"copy-{checks.topic}", "--num-records", 100, "--record-size", 100]
    checks.check("e2e-latency", "Avg latency", "kafka-e2e-latency", *latency, "--producer-acks", "all")
    application = ["--application-id", f"app-{checks.run}", "--input-topics", checks.topic, "--force"]
    checks.check("streams-reset", "", "kafka-streams-application-reset", *application)
    checks.check("topic-delete", "", "kafka-topics", "--delete", "--topic", checks.topic)
