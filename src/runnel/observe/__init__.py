"""Metrics without I/O: counters, the Prometheus text format, and the requests of the admin listener."""
