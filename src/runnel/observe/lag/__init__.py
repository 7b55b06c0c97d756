"""The lag of consumer groups in records and in seconds, a verdict and a forecast. No I/O, no clock.

timeline      end offsets of a partition over time: when was a record appended
partitions    the partitions with committed offsets: their ends, and what is known about them
window        the last commits of a group in a partition
verdict       ok, lagging, rewound, stalled, stopped; when is it caught up
first_unread  the first record at or after an offset that a consumer receives
tracker       all groups of a coordinator: commits first, then ends
report        groups as values and as JSON; families: as metrics
"""
