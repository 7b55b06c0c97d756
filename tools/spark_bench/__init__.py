"""Reading and writing topics with Spark: format "runnel" beside the JVM connector."""
