"""The records that Runnel keeps in its own topics, in Kafka's formats, declared like messages."""
