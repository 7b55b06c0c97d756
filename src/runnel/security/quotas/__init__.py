"""Client quotas, with Kafka's arithmetic and without a clock: every call is given the time.

entities   which quota applies to a client, and with which others it shares it
rates      how much was used lately, and for how long a client pauses
buckets    the rates of a limited number of clients
"""
