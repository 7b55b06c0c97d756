"""The log of one partition as arithmetic and plans: no files, no clock."""
