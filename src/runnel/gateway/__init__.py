"""The gateway: HTTP for people and programs, in a process of its own, over Kafka's protocol only.

    runnel serve ── broker
        └─ child ── gateway ── HTTP :8080

It holds nothing that must survive: every page and every response is read from the cluster. `console/` has the
pages. The broker's process imports nothing of this package.
"""
