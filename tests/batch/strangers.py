"""Record builders and readers of other clients, as independent opinions."""

import warnings

from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder

with warnings.catch_warnings():
    # kafka-python loads its schemas in a way that Python 3.11 calls deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
    from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

__all__ = ["AiokafkaBatch", "AiokafkaBuilder", "KafkaPythonBatch", "KafkaPythonBuilder"]
