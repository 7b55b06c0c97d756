"""Dead letters: why records could not be processed, and sending them back once that is mended."""
