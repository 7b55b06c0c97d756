"""Proof that nothing was lost: every batch of every partition is looked at, and what is wrong is named."""
