"""Plain values shared by every other package. Imports nothing of Runnel."""
