"""The rules: one table, from which the evaluator works and the rules file for Prometheus is written.

`expr` is the condition in PromQL, with thresholds as ${name}; `condition` is the same over our own history.
A rule's labels are those of its series, `broker` if each broker is considered separately (Prometheus calls it
`instance`), and `severity`: critical needs someone now, warning on the next working day.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from runnel.observe.alerts import conditions as c
from runnel.observe.alerts.conditions import Condition
from runnel.observe.alerts.series import Need

CRITICAL, WARNING = "critical", "warning"
SECOND_MS, MINUTE_MS, HOUR_MS, DAY_MS = 1000, 60_000, 3_600_000, 86_400_000


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule."""

    name: str
    severity: str
    for_ms: int
    """How long the condition must hold before the alert fires."""
    summary: str
    description: str
    expr: str
    condition: Condition
    needs: tuple[Need, ...] = ()
    thresholds: Mapping[str, float] = field(default_factory=dict)
    is_complete: bool = False
    """It knows all its series even if brokers are missing: one that is not mentioned has ended."""


LAG_WINDOW_MS = 2 * MINUTE_MS
LATENCY_WINDOW_MS = 5 * MINUTE_MS
DELAY_WINDOW_MS = MINUTE_MS
RARE_WINDOW_MS = HOUR_MS
LETTERS_WINDOW_MS = 10 * MINUTE_MS
TREND_WINDOW_MS = 6 * HOUR_MS
LONGEST_BOUND_S = 4.194304
"""The last bound of the histograms of durations: what is longer is counted beyond it."""
DEAD_LETTERS = r".+\.dead-letters"

LAG = Need(
    "kafka_consumergroup_lag_sum", ("consumergroup", "topic"), per_broker=False, window_ms=LAG_WINDOW_MS
)
LAG_SECONDS = Need(
    "kafka_consumergroup_group_max_lag_seconds", ("group",), per_broker=False, window_ms=LAG_WINDOW_MS
)
VERDICT = Need("runnel_group_verdict", ("group", "verdict"), per_broker=False)
DISK_FREE = Need("runnel_disk_free_bytes", None, window_ms=TREND_WINDOW_MS, is_stored=True)
DISK_TOTAL = Need("runnel_disk_total_bytes", None)
OFFLINE_DIRECTORIES = Need("kafka_log_logmanager_offlinelogdirectorycount")
UNDER_REPLICATED = Need("kafka_server_replicamanager_underreplicatedpartitions")
UNDER_MIN_ISR = Need("kafka_server_replicamanager_underminisrpartitioncount")
LATE_TRANSACTIONS = Need("kafka_server_replicamanager_partitionswithlatetransactionscount")
OFFLINE_PARTITIONS = Need("kafka_controller_kafkacontroller_offlinepartitionscount", per_broker=False)
CONTROLLERS = Need("kafka_controller_kafkacontroller_activecontrollercount", combine="sum", per_broker=False)
UNCLEAN = Need(
    "kafka_controller_controllerstats_uncleanleaderelections_total",
    is_counter=True,
    per_broker=False,
    window_ms=RARE_WINDOW_MS,
    is_stored=True,
)
REPLICA_LAG = Need("runnel_replica_lag_seconds", None, per_broker=False)
ELECTIONS = Need(
    "runnel_election_seconds_count",
    is_counter=True,
    per_broker=False,
    window_ms=RARE_WINDOW_MS,
    is_stored=True,
)
ELECTION_BUCKETS = Need(
    "runnel_election_seconds_bucket",
    ("le",),
    is_counter=True,
    per_broker=False,
    window_ms=RARE_WINDOW_MS,
    is_stored=True,
)
PRODUCE_LATENCY = Need(
    "runnel_request_seconds_bucket",
    ("le",),
    where=(("api", "Produce"),),
    is_counter=True,
    window_ms=LATENCY_WINDOW_MS,
)
END_TO_END = Need("runnel_end_to_end_seconds_bucket", ("le",), is_counter=True, window_ms=LATENCY_WINDOW_MS)
LOOP_DELAY = Need("runnel_loop_delay_seconds_bucket", ("le",), is_counter=True, window_ms=DELAY_WINDOW_MS)
CERTIFICATES = Need("runnel_certificate_expiry_timestamp_seconds", None)
LETTERS = Need(
    "kafka_topic_partition_current_offset",
    ("topic", "partition"),
    where=(("topic", DEAD_LETTERS),),
    per_broker=False,
    begins_at_zero=True,
    window_ms=LETTERS_WINDOW_MS,
    is_stored=True,
)
BROKER_ERRORS = (
    "KAFKA_STORAGE_ERROR",
    "REQUEST_TIMED_OUT",
    "LEADER_NOT_AVAILABLE",
    "NOT_ENOUGH_REPLICAS",
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    "COORDINATOR_NOT_AVAILABLE",
    "BROKER_NOT_AVAILABLE",
    "UNKNOWN_SERVER_ERROR",
)
"""Errors that are the cluster's fault: those of a wrong request, and of clients that have to look for a new
leader or coordinator, do not count."""
REQUESTS = Need(
    "runnel_request_seconds_count", is_counter=True, per_broker=False, window_ms=3 * DAY_MS, is_stored=True
)
ERRORS = Need(
    "runnel_request_errors_total",
    where=(("error", "|".join(BROKER_ERRORS)),),
    is_counter=True,
    per_broker=False,
    window_ms=3 * DAY_MS,
    is_stored=True,
)


def _verdict(name: str, word: str, summary: str, description: str) -> Rule:
    return Rule(
        name,
        WARNING,
        5 * MINUTE_MS,
        f"Group {{{{ $labels.group }}}} {summary}",
        f"{description}: `runnel group describe {{{{ $labels.group }}}}`.",
        f'max by (group) (runnel_group_verdict{{verdict="{word}"}}) > 0',
        c.is_word(VERDICT, "verdict", word),
        (VERDICT,),
    )


def _burn(long: str, short: str, threshold: str) -> str:
    errors = f'{ERRORS.metric}{{error=~"{"|".join(BROKER_ERRORS)}"}}'

    def share(window: str) -> str:
        failed, asked = (f"sum(increase({each}[{window}]))" for each in (errors, REQUESTS.metric))
        return f"{failed} / ({asked} >= ${{requests}}) > ${{{threshold}}} * (1 - ${{objective}})"

    return f"({share(long)} and {share(short)})"


def _p99(metric: str, window: str) -> str:
    return f"histogram_quantile(0.99, sum by (instance, le) (rate({metric}[{window}]))) > ${{seconds}}"


def _growth(series: str, window: str) -> str:
    """How much the partitions of a topic have grown; one that did not exist was empty."""
    now, then = (f"max by (topic, partition) ({each})" for each in (series, f"{series} offset {window}"))
    return f"sum by (topic) (clamp_min({now} - ({then} or {now} * 0), 0)) > ${{records}}"


CONSUMERS = (
    Rule(
        "ConsumerLagHigh",
        WARNING,
        2 * MINUTE_MS,
        "Group {{ $labels.consumergroup }} is {{ $value | humanize }} records behind in {{ $labels.topic }}",
        "The lag does not fall. Add consumers, or find out what slows them down: "
        "`runnel group describe {{ $labels.consumergroup }}`.",
        "max by (consumergroup, topic) (kafka_consumergroup_lag_sum) > ${records} "
        "and max by (consumergroup, topic) (delta(kafka_consumergroup_lag_sum[2m])) >= 0",
        c.above_and_not_falling(LAG, "records", LAG_WINDOW_MS),
        (LAG,),
        {"records": 1_000_000},
    ),
    Rule(
        "ConsumerLagOld",
        WARNING,
        2 * MINUTE_MS,
        "Group {{ $labels.group }} is {{ $value | humanizeDuration }} behind",
        "The first record that it has not read was appended this long ago, and the lag does not fall: "
        "`runnel group describe {{ $labels.group }}`.",
        "max by (group) (kafka_consumergroup_group_max_lag_seconds) > ${seconds} "
        "and max by (group) (delta(kafka_consumergroup_group_max_lag_seconds[2m])) >= 0",
        c.above_and_not_falling(LAG_SECONDS, "seconds", LAG_WINDOW_MS),
        (LAG_SECONDS,),
        {"seconds": 10},
    ),
    _verdict("ConsumerStopped", "stopped", "has stopped", "Records wait, and it commits no offsets"),
    _verdict("ConsumerStalled", "stalled", "is stalled", "It commits the same offsets while records wait"),
    _verdict("ConsumerRewound", "rewound", "was rewound", "It commits offsets before earlier ones"),
    Rule(
        "DeadLettersGrowing",
        WARNING,
        MINUTE_MS,
        "New dead letters in {{ $labels.topic }}: {{ $value | humanize }}",
        "Records that a pipeline could not process were written there within the last 10 minutes: "
        "`runnel consume {{ $labels.topic }} --from 10m`.",
        _growth(LETTERS.metric + '{topic=~"' + DEAD_LETTERS.replace("\\", "\\\\") + '"}', "10m"),
        c.grows(LETTERS, "records", LETTERS_WINDOW_MS, by=("topic",)),
        (LETTERS,),
        {"records": 0},
    ),
)

BROKERS = (
    Rule(
        "BrokerDown",
        CRITICAL,
        30 * SECOND_MS,
        "The metrics of broker {{ $labels.broker }} cannot be read",
        "Its admin listener does not answer: the broker is down, or not reachable from here.",
        'up{job="runnel"} == 0',
        c.metrics_missing,
        is_complete=True,
    ),
    Rule(
        "BrokerFenced",
        CRITICAL,
        10 * SECOND_MS,
        "Broker {{ $labels.broker }} is fenced",
        "The controller receives no heartbeats of it. Its partitions are led by other brokers, if they have "
        "in-sync replicas: `runnel cluster status`.",
        "max(max_over_time(kafka_brokers[1h])) - max(kafka_brokers) > 0",
        c.heartbeats_missing,
        is_complete=True,
    ),
    Rule(
        "DiskSpaceLow",
        WARNING,
        MINUTE_MS,
        "The disk of broker {{ $labels.broker }} is {{ $value | humanizePercentage }} full",
        "Shorten the retention of large topics, or extend the disk.",
        "1 - runnel_disk_free_bytes / runnel_disk_total_bytes > ${used}",
        c.used_above(DISK_FREE, DISK_TOTAL, "used"),
        (DISK_FREE, DISK_TOTAL),
        {"used": 0.80},
    ),
    Rule(
        "DiskSpaceCritical",
        CRITICAL,
        MINUTE_MS,
        "The disk of broker {{ $labels.broker }} is {{ $value | humanizePercentage }} full",
        "A broker whose disk is full cannot write: shorten the retention of large topics now.",
        "1 - runnel_disk_free_bytes / runnel_disk_total_bytes > ${used}",
        c.used_above(DISK_FREE, DISK_TOTAL, "used"),
        (DISK_FREE, DISK_TOTAL),
        {"used": 0.90},
    ),
    Rule(
        "DiskFullSoon",
        WARNING,
        HOUR_MS,
        "The disk of broker {{ $labels.broker }} will be full within a day",
        "By the trend of the last 6 hours.",
        "predict_linear(runnel_disk_free_bytes[6h], ${seconds}) < 0",
        c.exhausted_within(DISK_FREE, "seconds", TREND_WINDOW_MS),
        (DISK_FREE,),
        {"seconds": 86_400},
    ),
    Rule(
        "LogDirectoryOffline",
        CRITICAL,
        0,
        "Lost log directories of broker {{ $labels.broker }}: {{ $value }}",
        "Reads or writes failed. See the broker's log and the disk.",
        "kafka_log_logmanager_offlinelogdirectorycount > ${directories}",
        c.above(OFFLINE_DIRECTORIES, "directories"),
        (OFFLINE_DIRECTORIES,),
        {"directories": 0},
    ),
    Rule(
        "LoopDelayHigh",
        WARNING,
        MINUTE_MS,
        "Requests to broker {{ $labels.broker }} wait {{ $value | humanizeDuration }} to be received",
        "The 99th percentile of the delay of its event loop: the broker is overloaded, or short of CPU.",
        _p99("runnel_loop_delay_seconds_bucket", "1m"),
        c.histogram_above(LOOP_DELAY, "seconds", 0.99, DELAY_WINDOW_MS),
        (LOOP_DELAY,),
        {"seconds": 0.1},
    ),
    Rule(
        "CertificateExpiring",
        WARNING,
        MINUTE_MS,
        "A certificate of broker {{ $labels.broker }} expires in {{ $value | humanizeDuration }}",
        "Replace the file: brokers load new certificates while they run.",
        "runnel_certificate_expiry_timestamp_seconds - time() < ${seconds}",
        c.expires_within(CERTIFICATES, "seconds"),
        (CERTIFICATES,),
        {"seconds": 14 * 86_400},
    ),
)

REPLICATION = (
    Rule(
        "UnderReplicatedPartitions",
        WARNING,
        MINUTE_MS,
        "Under-replicated partitions of broker {{ $labels.broker }}: {{ $value }}",
        "Some replicas are not in sync: `runnel cluster status`.",
        "kafka_server_replicamanager_underreplicatedpartitions > ${partitions}",
        c.above(UNDER_REPLICATED, "partitions"),
        (UNDER_REPLICATED,),
        {"partitions": 0},
    ),
    Rule(
        "UnderMinIsrPartitions",
        CRITICAL,
        10 * SECOND_MS,
        "Partitions of broker {{ $labels.broker }} with too few in-sync replicas: {{ $value }}",
        "Writes with acks=all are rejected: `runnel cluster status`.",
        "kafka_server_replicamanager_underminisrpartitioncount > ${partitions}",
        c.above(UNDER_MIN_ISR, "partitions"),
        (UNDER_MIN_ISR,),
        {"partitions": 0},
    ),
    Rule(
        "OfflinePartitions",
        CRITICAL,
        10 * SECOND_MS,
        "Partitions without a leader: {{ $value }}",
        "They can neither be written nor read: `runnel cluster status`.",
        "max(kafka_controller_kafkacontroller_offlinepartitionscount) > ${partitions}",
        c.above(OFFLINE_PARTITIONS, "partitions"),
        (OFFLINE_PARTITIONS,),
        {"partitions": 0},
    ),
    Rule(
        "ReplicationLagHigh",
        WARNING,
        5 * MINUTE_MS,
        "Followers are {{ $value | humanizeDuration }} behind",
        "The 99th percentile over all replicas: look at the network and the disks of the brokers.",
        "quantile(0.99, runnel_replica_lag_seconds) > ${seconds}",
        c.quantile_of_series_above(REPLICA_LAG, "seconds", 0.99),
        (REPLICA_LAG,),
        {"seconds": 0.2},
    ),
    Rule(
        "FollowerBehind",
        WARNING,
        0,
        "A follower is {{ $value | humanizeDuration }} behind its leader",
        "It leaves the ISR after replica.lag.time.max.ms.",
        "max(runnel_replica_lag_seconds) > ${seconds}",
        c.quantile_of_series_above(REPLICA_LAG, "seconds", 1.0),
        (REPLICA_LAG,),
        {"seconds": 10},
    ),
    Rule(
        "ElectionSlow",
        CRITICAL,
        0,
        "Elections that took longer than 4 s: {{ $value }}",
        "Within the last hour. Partitions had no leader meanwhile.",
        "sum(increase(runnel_election_seconds_count[1h])) "
        '- sum(increase(runnel_election_seconds_bucket{le="${seconds}"}[1h])) > 0',
        c.counted_beyond(ELECTION_BUCKETS, ELECTIONS, "seconds", RARE_WINDOW_MS),
        (ELECTION_BUCKETS, ELECTIONS),
        {"seconds": LONGEST_BOUND_S},
    ),
    Rule(
        "ControllerCount",
        CRITICAL,
        10 * SECOND_MS,
        "Active controllers: {{ $value }}",
        "Without one, no leader is elected and no topic is created: `runnel cluster status`.",
        "sum(kafka_controller_kafkacontroller_activecontrollercount) != ${controllers}",
        c.is_not(CONTROLLERS, "controllers"),
        (CONTROLLERS,),
        {"controllers": 1},
    ),
    Rule(
        "UncleanLeaderElection",
        CRITICAL,
        0,
        "Unclean leader elections: {{ $value }}",
        "Within the last hour a replica that was not in sync became leader: acknowledged records are lost.",
        "sum(increase(kafka_controller_controllerstats_uncleanleaderelections_total[1h])) > ${elections}",
        c.grows(UNCLEAN, "elections", RARE_WINDOW_MS),
        (UNCLEAN,),
        {"elections": 0},
    ),
)

REQUESTS_AND_LATENCY = (
    Rule(
        "ProduceLatencyHigh",
        WARNING,
        5 * MINUTE_MS,
        "Produce requests to broker {{ $labels.broker }} take {{ $value | humanizeDuration }}",
        "The 99th percentile of the last 5 minutes, the wait for replicas included.",
        _p99('runnel_request_seconds_bucket{api="Produce"}', "5m"),
        c.histogram_above(PRODUCE_LATENCY, "seconds", 0.99, LATENCY_WINDOW_MS),
        (PRODUCE_LATENCY,),
        {"seconds": 0.010},
    ),
    Rule(
        "EndToEndLatencyHigh",
        WARNING,
        5 * MINUTE_MS,
        "Records of broker {{ $labels.broker }} are delivered after {{ $value | humanizeDuration }}",
        "The 99th percentile of the last 5 minutes, from append to delivery to a waiting consumer.",
        _p99("runnel_end_to_end_seconds_bucket", "5m"),
        c.histogram_above(END_TO_END, "seconds", 0.99, LATENCY_WINDOW_MS),
        (END_TO_END,),
        {"seconds": 0.050},
    ),
    Rule(
        "TransactionHanging",
        WARNING,
        MINUTE_MS,
        "Partitions of broker {{ $labels.broker }} with a transaction that does not end: {{ $value }}",
        "Consumers with read_committed do not read beyond it: `runnel txn find-hanging`, `runnel txn abort`.",
        "kafka_server_replicamanager_partitionswithlatetransactionscount > ${partitions}",
        c.above(LATE_TRANSACTIONS, "partitions"),
        (LATE_TRANSACTIONS,),
        {"partitions": 0},
    ),
    Rule(
        "AvailabilityBurnFast",
        CRITICAL,
        0,
        "Requests fail {{ $value | humanize }} times as often as the objective permits",
        "At 14.4 times, two percent of the error budget of 30 days are used up in an hour.",
        _burn("1h", "5m", "fast") + " or " + _burn("6h", "30m", "medium"),
        c.burns(
            ERRORS,
            REQUESTS,
            (("fast", HOUR_MS, 5 * MINUTE_MS), ("medium", 6 * HOUR_MS, 30 * MINUTE_MS)),
        ),
        (ERRORS, REQUESTS),
        {"objective": 0.9999, "fast": 14.4, "medium": 6, "requests": 100},
    ),
    Rule(
        "AvailabilityBurnSlow",
        WARNING,
        0,
        "Requests fail {{ $value | humanize }} times as often as the objective permits",
        "For three days: the error budget of 30 days will be used up before they end.",
        _burn("3d", "2h", "slow"),
        c.burns(ERRORS, REQUESTS, (("slow", 3 * DAY_MS, 2 * HOUR_MS),)),
        (ERRORS, REQUESTS),
        {"objective": 0.9999, "slow": 1, "requests": 100},
    ),
)

GROUPS = {
    "consumers": CONSUMERS,
    "brokers": BROKERS,
    "replication": REPLICATION,
    "requests": REQUESTS_AND_LATENCY,
}
RULES: tuple[Rule, ...] = tuple(rule for rules in GROUPS.values() for rule in rules)
