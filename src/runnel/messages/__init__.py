"""Kafka's requests and responses, one file per API, each declared once for all its versions."""
