"""The broker: one handler file per API, and the drivers that step the cores."""
