"""`runnel pipeline …`: data pipelines on Spark. Spark is imported only when a job runs."""
