"""Dead letters: groups records that could not be processed by reason, and redrives them."""
