"""Record builders and readers of other clients, as test oracles."""

import warnings

from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder

with warnings.catch_warnings():
    # kafka-python loads its schemas with an API that is deprecated in Python 3.11.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
    from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

__all__ = ["AiokafkaBatch", "AiokafkaBuilder", "KafkaPythonBatch", "KafkaPythonBuilder"]
