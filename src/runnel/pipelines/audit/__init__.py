"""The audit: checks every batch of every partition for loss, damage and duplicates."""
