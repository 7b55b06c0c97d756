"""Topics as tables to read from: what to read, fetching it, and turning whole fetches into Arrow columns."""
