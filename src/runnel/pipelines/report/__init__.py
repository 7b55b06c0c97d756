"""Reports that a person would rather look at than read: one HTML file with all in it, JSON beside it."""
