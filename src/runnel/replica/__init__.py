"""Replica: one partition as its leader sees it. Sans-IO: facts in, outputs out."""
