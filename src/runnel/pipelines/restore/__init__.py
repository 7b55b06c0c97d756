"""The restore job: writes an archive, or the files of a stopped broker, back to a topic."""
