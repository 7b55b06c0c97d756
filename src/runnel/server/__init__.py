"""Assembly: the only package that names concrete shells, and the entry points of users."""
