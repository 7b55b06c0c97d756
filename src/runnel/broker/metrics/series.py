"""Which series are shown: a broker with very many partitions or topics shows sums only."""

PARTITION_SERIES_MAX = 5_000
"""Above this many partitions of a node there are no series of single partitions."""

TOPIC_SERIES_MAX = 5_000
"""Above this many topics of a node there are no series of single topics."""

ROWS_PER_STEP = 100
"""Partitions that are examined before others are served: some 200 microseconds."""
