"""Segment files: append, read, group commit, recovery, retention."""
