"""`runnel pipeline …`: data pipelines on Spark. Spark itself is imported when one runs, never before."""
