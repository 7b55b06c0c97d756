"""Principals, authentication and permissions: decisions without sockets and files."""
