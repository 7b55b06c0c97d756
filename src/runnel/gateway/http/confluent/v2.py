"""Version 2."""

MEDIA_TYPE = "application/vnd.kafka.v2+json"
