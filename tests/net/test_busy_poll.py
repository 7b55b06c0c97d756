"""The event loop polls after a response for as long as requests arrive during the polls."""

from asyncio import AbstractEventLoop
from collections.abc import Callable
from typing import cast

from runnel.net.busy_poll import POLL_S, SKIPPED_MAX, BusyPoll

ITERATION_S = POLL_S / 10


class Loop:
    """An event loop with a clock that each iteration advances."""

    def __init__(self) -> None:
        self.now_s = 5.0
        self.callbacks: list[Callable[[], None]] = []
        self.poll = BusyPoll(cast(AbstractEventLoop, self), lambda: self.now_s)

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.callbacks.append(callback)

    @property
    def sleeps(self) -> bool:
        return not self.callbacks

    def iterate(self) -> None:
        due, self.callbacks = self.callbacks, []
        for callback in due:
            callback()
        self.now_s += ITERATION_S

    def respond(self, iterations: int) -> None:
        """A response, and so many iterations until the next request arrives."""
        self.poll.response_sent()
        for _ in range(iterations):
            self.iterate()

    def polls_after(self, responses: int) -> int:
        """Of responses to a client that is slow: how many are followed by a poll."""
        polls = 0
        for _ in range(responses):
            self.respond(0)
            polls += not self.sleeps
            while not self.sleeps:
                self.iterate()
        return polls


def test_the_loop_sleeps_once_the_poll_is_over() -> None:
    loop = Loop()
    loop.respond(5)
    assert not loop.sleeps
    for _ in range(10):
        loop.iterate()
    assert loop.sleeps


def test_it_never_sleeps_while_requests_arrive_in_time() -> None:
    loop = Loop()
    for _ in range(1000):
        loop.respond(9)
        assert len(loop.callbacks) == 1


def test_a_slow_client_costs_few_polls() -> None:
    loop = Loop()
    # Each poll in vain doubles the number of responses that are not followed by one.
    assert loop.polls_after(1 + 2 + 4 + 8) == 4
    assert loop.polls_after(10_000) <= 10_000 / SKIPPED_MAX + 8


def test_requests_of_which_every_second_arrives_in_time_cost_few_polls() -> None:
    loop = Loop()
    polled = 0
    for _ in range(10_000):
        loop.respond(5)
        polled += not loop.sleeps
        loop.respond(0)
        while not loop.sleeps:
            loop.iterate()
    assert polled <= 10_000 / SKIPPED_MAX * 4


def test_it_polls_again_when_requests_come_faster() -> None:
    loop = Loop()
    loop.polls_after(10_000)
    for _ in range(2 * SKIPPED_MAX):
        loop.respond(5)
    assert not loop.sleeps
    loop.polls_after(1)
    assert loop.polls_after(2) == 1
