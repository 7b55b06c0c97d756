"""The simulated world: files, clock and peers that fail on purpose."""
