"""Deterministic simulation of a cluster: the shipped broker on several nodes, with faults of all kinds."""
