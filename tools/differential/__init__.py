"""Differential tests: Runnel and Apache Kafka receive the same requests, and must respond alike."""
