"""Crash tests: real processes are killed, and every acknowledged record is verified."""
