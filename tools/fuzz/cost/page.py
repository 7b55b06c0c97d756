"""docs/COSTS.md: the longest pause that one request of each API can cause."""

from collections.abc import Sequence

from runnel.model import limits
from tools.fuzz.cost.measure import Cost
from tools.fuzz.cost.run import PAUSE_MS_MAX, Plan, worst_by_api
from tools.fuzz.cost.scenarios import Scenario

LIMITS = (
    "REQUEST_BYTES_MAX",
    "RECORDLESS_REQUEST_BYTES_MAX",
    "REQUEST_ELEMENTS_MAX",
    "UNSLICED_ELEMENTS_MAX",
    "NODE_ELEMENTS_MAX",
    "INLINE_REQUEST_BYTES_MAX",
    "INLINE_ELEMENTS_MAX",
    "SLICE_RECORDS_BYTES",
    "REQUEST_TAGS_MAX",
    "TEXT_BYTES_MAX",
    "SLICE_ELEMENTS",
    "FETCH_PARTITIONS_MAX",
    "MEMBER_METADATA_BYTES_MAX",
    "PARTITIONS_PER_REQUEST_MAX",
    "SCRAM_CHANGES_PER_REQUEST_MAX",
    "DELEGATION_TOKENS_MAX",
    "DESCRIBED_PRODUCERS_MAX",
    "RESPONSE_ELEMENTS_MAX",
    "INSPECTED_RECORDS_MAX",
    "INSPECTED_BATCH_BYTES_MAX",
)


def page(costs: Sequence[Cost], plan: Plan) -> str:
    """The page as Markdown."""
    population = plan.population
    lines = [
        "# The cost of a request",
        "",
        "This page lists the longest time for which one legal request keeps the event loop from serving",
        "other connections. It is written by `make fuzz COST=1`, which sends requests of every API, in its",
        "newest and its oldest version, whose arrays, strings and numbers are as large as the protocol and",
        "the limits below permit (and larger, which are rejected), alone and in pairs,",
        f"to a broker with {population.partitions:,} partitions, {population.groups:,} groups and "
        f"{population.transactional_ids:,} transactional ids:",
        f"{len(costs):,} requests. Then it sends large arrays to a broker with {population.acls:,} ACLs,",
        f"{population.quotas:,} quotas and an audit log of all decisions, as a client that is permitted to",
        "use half of the topics, groups and transactional ids; and requests of other nodes to an active",
        "controller. Times are CPU time of the event loop's thread between two waits; a request above the",
        "bound was repeated, and the shortest of three times counts. Threads that decode and encode large",
        "messages share the interpreter with the loop, which may wait 5 ms for it after a system call.",
        "",
        _verdict(costs, plan),
    ]
    for scenario in plan.scenarios:
        lines += ["", f"## {scenario}", "", *_table(worst_by_api(costs, scenario))]
    lines += [
        "",
        "## The limits",
        "",
        "Defined with their reasons in `model/limits.py`. A request that has more bytes, elements or tagged",
        "fields closes its connection, and the broker logs the limit; what exceeds another limit is served",
        "in slices or answered with an error code.",
        "",
    ]
    lines += ["| limit | value |", "|---|---:|"]
    lines += [f"| `{name}` | {getattr(limits, name):,} |" for name in LIMITS]
    return "\n".join(lines) + "\n"


def _verdict(costs: Sequence[Cost], plan: Plan) -> str:
    worst = [cost for scenario in plan.scenarios for cost in worst_by_api(costs, scenario)]
    over = dict.fromkeys(cost.case.name for cost in worst if cost.cpu_ms > PAUSE_MS_MAX)
    verdict = (
        f"{len(over)} APIs exceed the bound of {PAUSE_MS_MAX:.0f} ms: {', '.join(over)}."
        if over
        else f"No request exceeds the bound of {PAUSE_MS_MAX:.0f} ms."
    )
    planned = sum(len(scenario.api_keys) for scenario in Scenario)
    if len(worst) < planned:
        verdict += f" {len(worst)} of {planned} rows were measured: the run was interrupted, or of a part."
    if plan.is_quick:
        verdict += " This was a quick run: only the newest versions, and arrays filled with what exists."
    return verdict


def _table(worst: Sequence[Cost]) -> list[str]:
    return [
        "| API | longest pause | the request | its size | outcome |",
        "|---|---:|---|---:|---|",
        *(
            f"| {cost.case.name} v{cost.case.version} | {cost.cpu_ms:.0f} ms | {cost.case.description} "
            f"| {_size(cost.request_bytes)} | {_outcome(cost)} |"
            for cost in worst
        ),
    ]


def _size(size_bytes: int) -> str:
    for unit, factor in (("MB", 1_000_000), ("kB", 1_000)):
        if size_bytes >= factor:
            return f"{size_bytes / factor:.1f} {unit}"
    return f"{size_bytes} B"


def _outcome(cost: Cost) -> str:
    match cost.outcome:
        case "answered":
            return f"answered with {_size(cost.answer_bytes)}"
        case "closed":
            return "refused, connection closed"
    return cost.outcome
