"""Runnel and Apache Kafka on one machine, alternating in one run."""
