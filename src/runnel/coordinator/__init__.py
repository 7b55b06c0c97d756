"""Coordinators: event-sourced state machines whose log is an internal topic, one shard per partition."""
