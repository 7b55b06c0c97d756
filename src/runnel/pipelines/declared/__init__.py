"""Pipelines that a YAML file declares: sources, steps and sinks, checked line by line, then run on Spark."""
