"""Ports: the small interfaces through which cores and broker reach the world."""
