"""The operations of Confluent's REST proxy."""

from runnel.gateway.http.operations import Operation

CONFLUENT: tuple[Operation, ...] = ()
