"""From an archive, or from the files of a broker that is gone, back to a topic."""
