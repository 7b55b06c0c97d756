"""Reports: a self-contained HTML page, and the same data as JSON."""
