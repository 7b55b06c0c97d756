"""Data pipelines on Spark: topics as tables, and the jobs that a broker's owner needs (`runnel[spark]`)."""
