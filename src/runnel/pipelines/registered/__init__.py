"""Values with schemas of a schema registry, in the framing of Confluent's serializers.

`options.py` has what the source and the sink share, `schemas.py` fetches schemas, `decoding.py` and
`encoding.py` convert columns. `shapes.py` leads to one module per format: the column type of a schema, and
the conversion between data of that format and values of this type. `avro_resolution.py` finds differences of
schemas that would be misread.
"""
