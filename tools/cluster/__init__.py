"""Clusters of real processes, of Runnel or of Apache Kafka: their network, nodes and state."""
