"""The gateway: HTTP for browsers and programs, in a process of its own, as a client of the cluster.

    runnel serve ── broker
        └─ child ── gateway ── HTTP :8080

It holds nothing that must survive: every page and every response is read from the cluster. `console/` has the
pages. The broker's process imports nothing of this package.
"""
