"""Data pipelines on Spark: the data source `runnel`, and the jobs of `runnel pipeline` (`runnel[spark]`)."""
