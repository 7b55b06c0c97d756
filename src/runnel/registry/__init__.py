"""The schema registry without I/O: schemas, their formats, and the rules of schema evolution.

`format.py` is what every format provides; `avro/`, `json_schema/` and `protobuf/` provide it. Records of the
topic `_schemas` are replayed into a state; a request is decided against it, with records and a response.
"""
