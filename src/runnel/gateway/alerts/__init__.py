"""Alerts of a cluster: metrics are scraped, rules evaluated, states stored in a topic, receivers notified.

    Scraper ─► observe.alerts.Alerting ─► StateTopic (a transaction) ─► Delivery: webhook, Slack, e-mail

Of all evaluators of a cluster one is active, the others stand by. A process awaits `evaluator.run`.
"""
