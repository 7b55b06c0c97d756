"""Raft: the metadata quorum as KRaft defines it, without I/O."""
