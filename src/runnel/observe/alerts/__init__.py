"""Alerts: rules over metrics, their states, silences, and whom to notify when. No I/O, no clock.

    scrapes ─► History ─► rules ─► Alerting: pending, firing, resolved ─► groups ─► notifications

`rules.py` is the table of rules, `alerting.py` the entry point. The whole state is a set of records
{key, JSON} of a compacted topic: `Alerting.records()` returns them, `Alerting.restore()` continues from them.
"""
