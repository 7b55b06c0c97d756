"""The useful part of the API of Confluent's REST proxy, versions 2 and 3, without consumer instances.

Paths, fields and error codes are Confluent's, so that programs that use them need not change.
"""
