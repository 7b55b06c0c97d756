"""Topics into Iceberg tables, one per topic, every committed record once."""
