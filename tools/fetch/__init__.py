"""Programs of the machine, and downloads that are kept in a cache outside of the repository."""
