"""An evaluator of all rules over a real broker or cluster, and the times it is to believe."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from runnel.gateway.alerts.config import parsed_config
from runnel.gateway.alerts.evaluator import Evaluator, EvaluatorOptions
from runnel.observe.alerts.rules import RULES
from runnel.testing import Broker
from tests.gateway.alerts.servers import Webhook

SETTLE_S = 60
"""Conditions of real brokers take seconds; a busy machine takes longer."""


def options(broker: Broker, hook: Webhook, **more: str) -> EvaluatorOptions:
    """All rules, with hardly any pending time."""
    settings, receivers = parsed_config(
        {
            "alerts.interval": "200ms",
            "alerts.group.wait": "0",
            "alerts.group.interval": "200ms",
            "alerts.receiver.ops.type": "webhook",
            "alerts.receiver.ops.url": hook.url,
            **{f"alerts.{rule.name}.for": "200ms" for rule in RULES},
            **more,
        }
    )
    return EvaluatorOptions(broker.bootstrap_servers, {}, settings, receivers)


def heard(hook: Webhook, status: str) -> set[str]:
    """The rules of which the webhook was notified with this status."""
    return {
        alert["labels"]["alertname"]
        for body in hook.bodies
        for alert in body["alerts"]
        if alert["status"] == status
    }


async def until_heard(hook: Webhook, status: str, rules: set[str]) -> None:
    """Wait until the webhook was notified of all these rules."""
    try:
        async with asyncio.timeout(SETTLE_S):
            while not heard(hook, status) >= rules:
                await asyncio.sleep(0.02)
    except TimeoutError:
        missing = sorted(rules - heard(hook, status))
        raise AssertionError(f"not {status}: {missing}") from None


@asynccontextmanager
async def faster(evaluator: Evaluator, step_s: float) -> AsyncIterator[None]:
    """From evaluation to evaluation the clock goes on by this many seconds."""

    async def advance() -> None:
        clock = evaluator._clock
        while True:
            await asyncio.sleep(0.2)
            clock.at_least(clock.now_ms() + int(step_s * 1000))

    task = asyncio.create_task(advance())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
