"""The archive job: copies topics to Iceberg tables, every committed record once."""
