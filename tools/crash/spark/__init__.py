"""A streaming job on a Spark cluster, its executors, workers, driver and broker killed at random."""
