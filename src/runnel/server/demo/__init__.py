"""`runnel demo`: a broker, a stream of events, a consumer group, replays and a crash, in one report."""
