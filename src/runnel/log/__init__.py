"""The log of a partition: decisions and plans, without files or a clock."""
