"""`runnel bench`: throughput and latency of a live broker."""
