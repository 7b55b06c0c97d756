"""One turn: all that the requests of one receive staged is written together, then acknowledged together.

    serve, serve … → finish: write each touched log once → acknowledge what that committed → long polls

A turn that no network event will finish (a coordinator appended from a task, a sync completed) schedules its
own finish.
"""

from typing import TYPE_CHECKING, Protocol

from runnel.ports.clock import Timers
from runnel.ports.service import Loan

if TYPE_CHECKING:
    from runnel.broker.runtime.replicated_log import ReplicatedLog


class Watcher(Protocol):
    """A waiting request that is retried when a log has more to read."""

    def try_complete(self) -> None: ...


class Turn:
    """The logs to write, those with acknowledgements to call, and the watchers to wake."""

    __slots__ = ("_is_scheduled", "_timers", "is_open", "settled", "touched", "woken")

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._is_scheduled = False
        self.is_open = False
        """A network event is being processed and will call `finish`."""
        self.touched: list[ReplicatedLog] = []
        self.settled: list[ReplicatedLog] = []
        """Logs with completed waiters; added by the logs."""
        self.woken: dict[Watcher, None] = {}

    def touch(self, log: "ReplicatedLog") -> None:
        """This log has staged records that the end of the turn must write."""
        self.touched.append(log)
        if not self.is_open:
            self.schedule()

    def wake(self, watchers: dict[Watcher, None]) -> None:
        """Retry these requests once all logs are written."""
        self.woken.update(watchers)
        if not self.is_open:
            self.schedule()

    def schedule(self) -> None:
        """Finish soon, without a network event."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._timers.call_later(0, self._scheduled)

    def finish(self, loan: Loan | None = None) -> None:
        """Write, acknowledge, wake. What is staged is in the loan's memory, if there is one."""
        # Open while it runs: batches staged and requests woken by an acknowledgement join the same turn.
        self.is_open = True
        bug: Exception | None = None
        try:
            touched, settled, woken = self.touched, self.settled, self.woken
            while touched or settled or woken:
                while touched:
                    # All logs are written even if one fails: staged batches are borrowed until this returns.
                    try:
                        touched.pop().write(loan)
                    except Exception as error:  # noqa: BLE001 - raised below
                        bug = bug or error
                while settled:
                    settled.pop().acknowledge()
                while woken:
                    watcher = next(iter(woken))
                    del woken[watcher]
                    try:
                        watcher.try_complete()
                    except Exception as error:  # noqa: BLE001 - raised below
                        # Nothing else would wake the others.
                        bug = bug or error
        finally:
            self.is_open = False
        if bug is not None:
            raise bug

    def _scheduled(self) -> None:
        self._is_scheduled = False
        self.finish()
