"""Assembly: the only room that names concrete shells, and the door that people come in by."""
