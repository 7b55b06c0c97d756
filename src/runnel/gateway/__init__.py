"""The gateway: a process beside the broker that speaks Kafka's protocol only, and keeps nothing of its own."""
