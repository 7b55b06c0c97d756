"""From an archive, or from the files of a lost broker, back to a topic."""
