"""Principals, and what they may do: decisions without sockets and files."""
