"""Alerts of a cluster: metrics are scraped, rules evaluated, states stored in a topic, receivers notified.

    Scraper ─► observe.alerts.Alerting ─► StateTopic (a transaction) ─► Delivery: webhook, Slack, e-mail

One of the evaluators of a cluster is active, the others are on standby. A process awaits `evaluator.run`.
"""
