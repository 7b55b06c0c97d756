"""The machinery behind the handlers: the request pipeline, turn, logs, shard drivers, waiting requests."""
