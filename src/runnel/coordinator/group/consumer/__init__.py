"""Consumer groups of the newer protocol (KIP-848): the coordinator assigns, and moves only what must move."""
