"""Resolves subscriptions to partitions, and bounds to offsets."""

import logging
import re
from collections.abc import Callable, Container

from runnel.client.cluster import TopicView
from runnel.client.offsets import EARLIEST, LATEST
from runnel.model.ids import TopicPartition
from runnel.pipelines.broker import BrokerView
from runnel.pipelines.errors import BadOption, DataLost, UnknownTopic
from runnel.pipelines.source.options import Bound, SourceOptions, Subscription
from runnel.pipelines.source.planning import Range, partition_names

Offsets = dict[TopicPartition, int]
Topics = dict[TopicPartition, bytes]
"""Partitions, each with the id of its topic."""

CONNECT_TIMEOUT_S = 10.0
"""A query may start while its broker restarts; a wrong address should not take much longer to be reported."""

logger = logging.getLogger(__name__)


def connected(options: SourceOptions) -> BrokerView:
    """The driver's view of the brokers; outages of up to `fetchTimeoutMs` are retried."""
    outage_max_s = options.fetch_timeout_ms / 1000
    return BrokerView(
        options.bootstrap_servers,
        client_id=options.client_id,
        properties=options.properties,
        api_timeout_s=outage_max_s,
        connect_timeout_s=min(CONNECT_TIMEOUT_S, outage_max_s),
    )


def subscribed(broker: BrokerView, subscription: Subscription, seen_before: Container[str] = ()) -> Topics:
    """The current partitions.

    UnknownTopic for a missing one, unless its topic was `seen_before` and is therefore deleted.
    """
    if subscription.pattern is not None:
        matches = _pattern(subscription.pattern)
        return _partitions([view for view in broker.topics() if matches(view.name)])
    names = subscription.topics or dict.fromkeys(partition.topic for partition in subscription.assigned)
    known = _partitions(broker.named_topics(names, may_miss=seen_before))
    if subscription.topics:
        return known
    missing = [
        partition
        for partition in subscription.assigned
        if partition not in known and partition.topic not in seen_before
    ]
    if missing:
        raise UnknownTopic(f"unknown partition {partition_names(missing)}")
    return {partition: known[partition] for partition in subscription.assigned if partition in known}


def batch_ranges(broker: BrokerView, options: SourceOptions) -> list[Range]:
    """The ranges of a batch query, determined when it is planned."""
    topics = subscribed(broker, options.subscription)
    starting = options.starting or Bound(moment=EARLIEST)
    ending = options.ending or Bound(moment=LATEST)
    if starting.moment == LATEST or LATEST in starting.moments.values():
        raise BadOption("a batch query cannot start at latest")
    if ending.moment == EARLIEST or EARLIEST in ending.moments.values():
        raise BadOption("a query cannot end at earliest")
    first = broker.earliest_offsets(topics)
    last = broker.latest_offsets(topics, isolation=options.isolation)
    starts = starting_offsets(broker, options, starting, first, last)
    ends = ending_offsets(broker, options, ending, last)
    return [
        _within(Range(partition, starts[partition], ends[partition], topics[partition]), first, last, options)
        for partition in topics
    ]


def starting_offsets(
    broker: BrokerView, options: SourceOptions, bound: Bound, first: Offsets, last: Offsets
) -> Offsets:
    """The starting offset of each partition. `first` and `last` are the bounds of the logs."""
    found = _offsets(broker, options, bound, "starting", first, last)
    missing = [partition for partition, offset in found.items() if offset is None]
    if missing and options.without_match == "error":
        raise BadOption(
            f"no record of {partition_names(missing)} is as late as the starting timestamp; "
            "to start at the end, set startingOffsetsByTimestampStrategy to latest"
        )
    return {partition: last[partition] if offset is None else offset for partition, offset in found.items()}


def ending_offsets(broker: BrokerView, options: SourceOptions, bound: Bound, last: Offsets) -> Offsets:
    """The ending offset of each partition: its end if no record is as late as the timestamp."""
    found = _offsets(broker, options, bound, "ending", last, last)
    return {partition: last[partition] if offset is None else offset for partition, offset in found.items()}


def _offsets(
    broker: BrokerView, options: SourceOptions, bound: Bound, side: str, first: Offsets, last: Offsets
) -> dict[TopicPartition, int | None]:
    _check_named(bound, set(last), side)
    moments = {
        partition: bound.moment if bound.moment is not None else bound.moments[partition]
        for partition in last
        if bound.moment is not None or partition in bound.moments
    }
    found: dict[TopicPartition, int | None] = dict(bound.offsets)
    found |= {
        partition: first[partition] if moment == EARLIEST else last[partition]
        for partition, moment in moments.items()
        if moment < 0
    }
    timestamps = {partition: moment for partition, moment in moments.items() if moment >= 0}
    for partition, offset in broker.offsets_at(timestamps, isolation=options.isolation).items():
        # The record found may belong to a transaction that is still open.
        found[partition] = offset if offset is None else min(offset, last[partition])
    return found


def _check_named(bound: Bound, partitions: set[TopicPartition], side: str) -> None:
    if bound.is_for_all:
        return
    missing, unknown = partitions - bound.partitions, bound.partitions - partitions
    if missing:
        raise BadOption(
            f"the {side} offsets contain no offset for {partition_names(missing)}; each partition needs one"
        )
    if unknown:
        raise BadOption(f"the {side} offsets contain {partition_names(unknown)}, which is not read")


def _within(whole: Range, first: Offsets, last: Offsets, options: SourceOptions) -> Range:
    """The part of the range that is in the log; DataLost if it is not all and `failOnDataLoss` is set."""
    low, high = first[whole.partition], last[whole.partition]
    start, end = max(whole.start, low), min(whole.end, high)
    if whole.start >= whole.end or (start, end) == (whole.start, whole.end):
        return whole
    available = f"offsets {low} to {high - 1} are available" if high > low else "the log is empty"
    lost = f"{whole.partition}: offsets {whole.start} to {whole.end - 1} were requested, but {available}"
    if options.fail_on_data_loss:
        raise DataLost(f"{lost}. To skip the missing records, set the option failOnDataLoss to false.")
    logger.warning("%s", lost)
    return Range(whole.partition, start, max(start, end), whole.topic_id)


def _pattern(pattern: str) -> Callable[[str], object]:
    try:
        return re.compile(pattern).fullmatch
    except re.error as error:
        raise BadOption(f"subscribePattern={pattern!r} is not a regular expression: {error}") from None


def _partitions(views: list[TopicView]) -> Topics:
    return {
        TopicPartition(view.name, partition.partition): view.topic_id
        for view in views
        for partition in view.partitions
    }
