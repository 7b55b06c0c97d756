"""Replica: the state of a partition as leader or follower, without I/O."""
