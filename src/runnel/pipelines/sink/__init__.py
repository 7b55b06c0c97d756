"""Writing rows to topics: at least once, or exactly once by transactions that one decision ends."""
