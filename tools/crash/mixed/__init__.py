"""Clusters of Runnel and Apache Kafka together: their faults, their tools, and the migration between them."""
