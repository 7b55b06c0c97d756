"""Apache Kafka, fetched by its Maven coordinates: its tools, and a node of it to compare with."""
