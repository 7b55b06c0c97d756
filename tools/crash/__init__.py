"""Does the broker keep what it acknowledged? Real processes, real disks, real kills."""
