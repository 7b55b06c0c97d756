"""The sink: writes rows to topics at least once, or exactly once with transactions."""
