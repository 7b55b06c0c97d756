"""The metrics of a broker: collectors that read its state and counters when they are wanted."""
