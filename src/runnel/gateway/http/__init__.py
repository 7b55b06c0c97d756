"""The HTTP API: publish, subscribe, acknowledge, and topics, over Kafka's protocol.

    operations.py   what an operation is: method, path, query, body, responses per status, handler
    table.py        all operations, from which routes, OpenAPI and the docs page follow
    api.py          an `Api`: routes, principals and their streams
    requests.py     from an ASGI request to a handler and back; problems.py, limits.py
    bodies.py       bodies in time and within a budget; counting.py counts records before they are decoded
    principals.py   who asks: credentials → a client of the cluster
    publishing.py   records in; polling.py, groups.py and streams/ records out; topics.py
    cloud_events.py CloudEvents ↔ records; confluent/ the API of Confluent's REST proxy

No operation has an instance or a session: any gateway serves any request. What `subscribe?group=` and `ack`
mean is decided in groups.py only, which share groups will replace.
"""
