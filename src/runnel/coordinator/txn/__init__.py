"""Transactions: who may write under a transactional id, which partitions it wrote to, and how that ended."""
