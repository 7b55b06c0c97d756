"""A cluster of real nodes in network namespaces, its clients, and faults of both."""
