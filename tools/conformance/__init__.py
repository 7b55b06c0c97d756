"""Conformance: third-party test suites, run against a broker."""
