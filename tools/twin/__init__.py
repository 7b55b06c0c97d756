"""The same questions to Runnel and to Apache Kafka: an answer that differs is a bug, or has a reason."""
