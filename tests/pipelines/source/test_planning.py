"""Splitting and limiting ranges."""

from hypothesis import given
from hypothesis import strategies as st

from runnel.model.ids import TopicPartition
from runnel.pipelines.source.planning import Range, from_json, limited, partition_names, split_ranges, to_json

partitions = st.builds(TopicPartition, st.sampled_from(["a", "b.c"]), st.integers(0, 9))
ranges = st.lists(
    st.builds(lambda partition, start, size: Range(partition, start, start + size), partitions,
              st.integers(0, 10**6), st.integers(0, 5000)),
    unique_by=lambda whole: whole.partition,
    max_size=6,
)  # fmt: skip
counts = st.one_of(st.none(), st.integers(1, 40))
tables = st.dictionaries(partitions, st.integers(0, 10**12))


@given(ranges, counts, st.one_of(st.none(), st.integers(200, 3000)))
def test_pieces_cover_the_ranges(wholes, min_partitions, max_records) -> None:
    pieces = split_ranges(wholes, min_partitions, max_records)
    joined: dict[TopicPartition, list[int]] = {}
    for piece in pieces:
        assert piece.end > piece.start
        if max_records is not None:
            assert len(piece) <= max_records
        bounds = joined.setdefault(piece.partition, [piece.start, piece.start])
        assert bounds[1] == piece.start, "pieces stand in order, without a gap"
        bounds[1] = piece.end
    expected = {whole.partition: [whole.start, whole.end] for whole in wholes if len(whole)}
    assert joined == expected
    if min_partitions is not None:
        assert len(pieces) >= min(min_partitions, sum(len(whole) for whole in wholes))
    if min_partitions is None and max_records is None:
        assert len(pieces) == len(expected)


def test_pieces_are_of_about_the_same_length() -> None:
    wholes = [Range(TopicPartition("a", 0), 0, 1000), Range(TopicPartition("a", 1), 0, 10)]
    sizes = [len(piece) for piece in split_ranges(wholes, 6, None)]
    assert sizes == [200, 200, 200, 200, 200, 10]


@given(tables, st.dictionaries(partitions, st.integers(0, 10**6), min_size=1), st.integers(1, 10**6))
def test_limits_are_fair_and_never_stall(begins, rests, offsets_max: int) -> None:
    starts = {partition: begins.get(partition, 0) for partition in rests}
    ends = {partition: starts[partition] + rest for partition, rest in rests.items()}
    stops = limited(starts, ends, offsets_max)
    total = sum(rests.values())
    for partition, rest in rests.items():
        got = stops[partition] - starts[partition]
        assert 0 <= got <= rest
        assert got > 0 or rest == 0, "every partition with lag makes progress"
        if total > offsets_max and rest:
            ideal = offsets_max * rest / total
            assert ideal - 1 < got <= max(ideal, 1)
        else:
            assert got == rest
    assert sum(stops[partition] - starts[partition] for partition in rests) <= offsets_max + len(rests)


def test_a_log_that_ends_before_its_start_is_not_limited_below_its_end() -> None:
    partition = TopicPartition("a", 0)
    assert limited({partition: 50}, {partition: 7, TopicPartition("a", 1): 100}, 10)[partition] == 7


@given(tables)
def test_offsets_survive_json(offsets) -> None:
    table = to_json(offsets)
    assert from_json(table) == offsets
    assert all(isinstance(number, str) for numbers in table.values() for number in numbers)


def test_only_the_first_partitions_are_named() -> None:
    names = [TopicPartition("orders", number) for number in range(8)]
    assert partition_names(names, most=2) == "orders-0, orders-1 and 6 more"
    assert partition_names(names[:1]) == "orders-0"
