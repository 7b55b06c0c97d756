"""Ports: interfaces of cores and broker to the outside."""
