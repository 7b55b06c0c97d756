"""The records of the internal topics and the metadata log, in Kafka's formats, declared like messages."""
