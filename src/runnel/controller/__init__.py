"""Cluster metadata: requests become records, records become the image. No I/O here."""
