"""Exactly-once copies between topics while brokers and workers are killed."""
