"""Record batches, format 2: the header view, checksum, build, iterate and compression."""
