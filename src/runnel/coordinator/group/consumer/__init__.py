"""Consumer groups (KIP-848): the coordinator computes assignments, and members reconcile incrementally."""
