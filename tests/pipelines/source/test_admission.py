"""The arithmetic of batch limits."""

from hypothesis import given
from hypothesis import strategies as st

from runnel.model.ids import TopicPartition
from runnel.pipelines.source.admission import Admission, available, mean_bytes

partitions = st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 3))


@given(
    st.dictionaries(partitions, st.tuples(st.integers(1, 10**6), st.floats(0, 10**4)), min_size=1),
    st.integers(1, 10**6),
    st.integers(1, 10**9),
)
def test_a_batch_exceeds_its_limits_by_one_offset_of_a_partition_at_most(
    rests: dict[TopicPartition, tuple[int, float]], offsets_max: int, bytes_max: int
) -> None:
    starts = dict.fromkeys(rests, 7)
    ends = {partition: 7 + rest for partition, (rest, _) in rests.items()}
    sizes = {partition: size for partition, (_, size) in rests.items()}
    stops = Admission(bytes_max=bytes_max).ends(starts, ends, offsets_max, sizes)
    counts = {partition: stops[partition] - 7 for partition in rests}
    assert all(0 < count <= rests[partition][0] for partition, count in counts.items())
    beyond = [partition for partition, count in counts.items() if count > 1]
    assert sum(counts[partition] for partition in beyond) <= offsets_max
    assert sum(counts[partition] * sizes[partition] for partition in beyond) <= bytes_max * 1.001 + 1
    if available(starts, ends) <= offsets_max and not any(sizes.values()):
        assert stops == ends


def test_few_records_wait_for_more_until_the_delay_is_over() -> None:
    starts, ends = {TopicPartition("a", 0): 5}, {TopicPartition("a", 0): 8, TopicPartition("a", 1): 1}
    admission = Admission(offsets_min=5, delay_max_ms=1000)
    assert admission.is_delayed(starts, ends, 999.0)
    assert not admission.is_delayed(starts, ends, 1000.0)
    assert not admission.is_delayed(starts, ends, None), "the first batch of a query does not wait"
    assert not Admission(offsets_min=4).is_delayed(starts, ends, 0.0)
    assert not Admission().is_delayed(starts, ends, 0.0)


def test_sizes_are_per_offset_of_a_log() -> None:
    full, empty = TopicPartition("a", 0), TopicPartition("a", 1)
    assert mean_bytes({full: 1000, empty: 9}, {full: 10, empty: 3}, {full: 30, empty: 3}) == {full: 50.0}
