"""The useful part of the API of Confluent's REST proxy."""
