"""Commands of the quorum's transcripts: one core, and its peers as the transcript plays them.

start 1 of 1,2,3           a member; `epoch=`, `leader=`, `voted=` as stored, `log=epoch:count,...` its log;
                           `configured` voters are known by their ids alone
wait 500                   time passes
vote 2 epoch=3 log=2:10    node 2 asks for a vote (`pre` for a pre-vote); the reply follows
begin 2 epoch=3            node 2 announces that it leads
end 2 epoch=3 2,3          node 2 resigns; candidates in order
fetch 2 at=5 last=1        node 2 fetches (`epoch=` if it is not that of this node, `directory=` if it is
                           another node with that id); `duplicates` shows ids that two nodes have
reply 2 granted            the reply to the request in flight to node 2; also `no`, `error=`, `epoch=`,
                           `leader=`; for fetches `records=epoch:count`, `hw=`, `diverging=epoch:end`,
                           `snapshot=end:epoch`
fail 2                     that request fails; `broken` if the connection broke
append 3                   this node, which leads, appends records; `sync` makes the log durable
resign                     this node stops leading
add 4, remove 2            this node, which leads, changes the voters; `start 1 of 1,2,3 dynamic` lets it

A reply is shown before the state that must be stored first. A follower has two requests in flight: `reply 2`
is for the fetch, `reply 2 other` for the other one.
"""

from collections.abc import Callable

from runnel.model.errors import ApiError, ErrorCode
from runnel.model.ids import NO_LEADER, SnapshotId
from runnel.raft.in_flight import Lane
from runnel.raft.leader import Leader
from runnel.raft.quorum import Quorum
from runnel.raft.replies import BrokenLog
from runnel.raft.roles import Candidate, Follower, Prospective, Resigned
from runnel.raft.values import (
    AddVoter,
    Advanced,
    Append,
    BeginEpoch,
    ElectionState,
    EndEpoch,
    Endpoint,
    Fetch,
    FetchReply,
    FetchSnapshot,
    Follow,
    Lead,
    Output,
    QuorumTiming,
    RemoveVoter,
    ReplicaKey,
    Reply,
    Request,
    Send,
    SnapshotReply,
    StoreState,
    Truncate,
    UpdateVoter,
    Vote,
    VoteReply,
    WritePage,
)
from runnel.raft.voters import Voter, VoterHistory, Voters
from tests.raft.memory_log import Entries, Entry, MemoryLog

LISTENER = "CONTROLLER"


def endpoints(node_id: int) -> tuple[Endpoint, ...]:
    return (Endpoint(LISTENER, f"node{node_id}", 9093),)


def key(node_id: int) -> ReplicaKey:
    return ReplicaKey(node_id, node_id.to_bytes(16))


def voter(node_id: int) -> Voter:
    return Voter(key(node_id), endpoints(node_id))


class Commands:
    """Plays a transcript."""

    def __init__(self) -> None:
        self._core: Quorum | None = None
        self._now_ms = 0
        self._entries = Entries()
        self._log = MemoryLog()
        self._in_flight: dict[tuple[int, Lane], Send] = {}
        self._shown_role = ""

    def play(self, line: str) -> list[str]:
        verb, *words = line.split()
        named = dict(word.split("=", 1) for word in words if "=" in word)
        plain = [word for word in words if "=" not in word]
        command: Callable[[list[str], dict[str, str]], list[str]] = getattr(self, f"_do_{verb}")
        lines = command(plain, named)
        return lines + self._show_outputs() + self._show_role()

    @property
    def core(self) -> Quorum:
        assert self._core is not None, "the transcript begins with start"
        return self._core

    # -- commands

    def _do_start(self, plain: list[str], named: dict[str, str]) -> list[str]:
        node_id, voters = int(plain[0]), [int(each) for each in plain[2].split(",")]
        self._entries, self._log, self._now_ms = Entries(), MemoryLog(), 0
        self._in_flight, self._shown_role = {}, ""
        self._log.append(self._parse_entries(named.get("log", "")))
        self._log.durable_offset = self._log.end_offset
        first = Voters(voter(each) for each in voters)
        if "configured" in plain:
            first = Voters(Voter(ReplicaKey(each), endpoints(each)) for each in voters)
        history = VoterHistory(first)
        if "dynamic" in plain:
            history.restart(0, 1, first)
        self._core = Quorum(
            key(node_id), endpoints(node_id), LISTENER, QuorumTiming(), self._log, history, draw=_half
        )
        state = None
        if "epoch" in named:
            voted = key(int(named["voted"])) if "voted" in named else None
            state = ElectionState(int(named["epoch"]), int(named.get("leader", NO_LEADER)), voted)
        self._core.restore(int(named.get("hw", 0)), self._log.durable_offset)
        self._core.start(state, 0)
        return []

    def _do_wait(self, plain: list[str], named: dict[str, str]) -> list[str]:
        self._now_ms += int(plain[0])
        self.core.ticked(self._now_ms)
        return []

    def _do_vote(self, plain: list[str], named: dict[str, str]) -> list[str]:
        last_epoch, end_offset = _pair(named.get("log", "0:0"))
        asked = key(int(named["voter"])) if "voter" in named else None
        candidate, epoch = key(int(plain[0])), int(named["epoch"])
        vote = Vote(epoch, candidate, asked, last_epoch, end_offset, "pre" in plain)
        return [_describe_reply(self.core.vote_requested(vote, self._now_ms))]

    def _do_begin(self, plain: list[str], named: dict[str, str]) -> list[str]:
        node_id = int(plain[0])
        asked = key(int(named["voter"])) if "voter" in named else None
        begin = BeginEpoch(int(named["epoch"]), node_id, asked, endpoints(node_id))
        return [_describe_reply(self.core.epoch_begun(begin, self._now_ms))]

    def _do_end(self, plain: list[str], named: dict[str, str]) -> list[str]:
        node_id = int(plain[0])
        candidates = tuple(key(int(each)) for each in plain[1].split(","))
        end = EndEpoch(int(named["epoch"]), node_id, candidates, endpoints(node_id))
        return [_describe_reply(self.core.epoch_ended(end, self._now_ms))]

    def _do_fetch(self, plain: list[str], named: dict[str, str]) -> list[str]:
        epoch = int(named.get("epoch", self.core.epoch))
        replica, offset = key(int(plain[0])), int(named["at"])
        if "directory" in named:
            replica = ReplicaKey(replica.id, int(named["directory"]).to_bytes(16))
        fetch = Fetch(epoch, replica, offset, int(named.get("last", 0)))
        reply = self.core.fetch_requested(fetch, self._now_ms)
        is_readable = reply.error is ErrorCode.NONE and reply.diverging is None and reply.snapshot is None
        if is_readable:
            reply.records = self._entries.encode(self._log.read(offset, 100))
        return [self._describe_fetch(reply)]

    def _do_duplicates(self, plain: list[str], named: dict[str, str]) -> list[str]:
        assert self.core.leader is not None
        return [f"duplicates {','.join(map(str, sorted(self.core.leader.duplicates))) or '-'}"]

    def _do_reply(self, plain: list[str], named: dict[str, str]) -> list[str]:
        sent = self._answered(plain)
        try:
            self.core.answered(sent, self._reply_to(sent.request, plain[1:], named), self._now_ms)
        except BrokenLog as error:
            return [f"broken: {error}"]
        return []

    def _do_fail(self, plain: list[str], named: dict[str, str]) -> list[str]:
        sent = self._answered(plain)
        if "unsupported" in plain:
            self.core.unsupported(sent, self._now_ms)
        else:
            self.core.failed(sent, self._now_ms, is_broken="broken" in plain)
        return []

    def _do_append(self, plain: list[str], named: dict[str, str]) -> list[str]:
        self._log.append([self._entries.create(self.core.epoch) for _ in range(int(plain[0]))])
        return [f"log ends at {self._log.end_offset}"]

    def _do_sync(self, plain: list[str], named: dict[str, str]) -> list[str]:
        self._log.durable_offset = self._log.end_offset
        self.core.stored(self._log.durable_offset, self._now_ms)
        return []

    def _do_add(self, plain: list[str], named: dict[str, str]) -> list[str]:
        new = voter(int(plain[0]))
        try:
            voters = self.core.changes.adding(new)
        except ApiError as error:
            return [f"{error.error.name}: {error}"]
        if not self.core.changes.has_caught_up(new.key, self._now_ms):
            return ["has not caught up"]
        return self._change_voters(voters)

    def _do_remove(self, plain: list[str], named: dict[str, str]) -> list[str]:
        try:
            return self._change_voters(self.core.changes.removing(key(int(plain[0]))))
        except ApiError as error:
            return [f"{error.error.name}: {error}"]

    def _change_voters(self, voters: Voters) -> list[str]:
        self.core.history.voters_appended(self._log.end_offset, voters)
        self._log.append([self._entries.create(self.core.epoch, voters)])
        self.core.voters_changed(self._now_ms)
        return [f"voters {','.join(map(str, voters.ids))} from {self._log.end_offset - 1} on"]

    def _do_resign(self, plain: list[str], named: dict[str, str]) -> list[str]:
        self.core.resign(self._now_ms)
        return []

    def _do_lose(self, plain: list[str], named: dict[str, str]) -> list[str]:
        """The disk lost the records from this offset on."""
        self._log.truncate_to(int(plain[0]))
        self.core.truncated(int(plain[0]), self._now_ms)
        return []

    # -- replies of the peers

    def _answered(self, plain: list[str]) -> Send:
        is_fetch = not isinstance(self.core.role, Prospective | Candidate | Leader | Resigned)
        lane = Lane.FETCH if is_fetch and "other" not in plain else Lane.ELECTION
        return self._in_flight.pop((int(plain[0]), lane))

    def _reply_to(self, request: Request, plain: list[str], named: dict[str, str]) -> Reply:
        error = ErrorCode[named.get("error", "NONE")]
        epoch = int(named.get("epoch", self.core.epoch))
        leader_id = int(named.get("leader", self.core.role.leader_id))
        reply = Reply(error, epoch, leader_id, endpoints(leader_id) if leader_id >= 0 else ())
        match request:
            case Vote():
                reply = VoteReply(error, epoch, leader_id, reply.endpoints, "granted" in plain)
            case Fetch():
                reply = self._fetch_reply(reply, named)
            case FetchSnapshot(_, _, snapshot, position):
                data, size = memoryview(bytes(int(named["page"]))), int(named["size"])
                reply = SnapshotReply(
                    error, epoch, leader_id, reply.endpoints, snapshot, size, position, data
                )
        return reply

    def _fetch_reply(self, known: Reply, named: dict[str, str]) -> FetchReply:
        reply = FetchReply(known.error, known.epoch, known.leader_id, known.endpoints)
        reply.high_watermark = int(named.get("hw", -1))
        if "diverging" in named:
            reply.diverging = _pair(named["diverging"])
        if "snapshot" in named:
            reply.snapshot = SnapshotId(*_pair(named["snapshot"]))
        reply.records = self._entries.encode(self._parse_entries(named.get("records", "")))
        return reply

    def _parse_entries(self, text: str) -> list[Entry]:
        runs = [_pair(each) for each in text.split(",") if each]
        return [self._entries.create(epoch) for epoch, count in runs for _ in range(count)]

    # -- outputs

    def _show_outputs(self) -> list[str]:
        lines: list[str] = []
        while outputs := self.core.take():
            lines += [line for output in outputs if (line := self._carry_out(output))]
        return lines

    def _carry_out(self, output: Output) -> str:
        match output:
            case StoreState(state):
                voted = "-" if state.voted is None else state.voted.id
                return f"store epoch {state.epoch}, leader {_node(state.leader_id)}, voted {voted}"
            case Send(peer, request):
                self._in_flight[peer.id, Lane.of(request)] = output
                return f"send {peer.id}: {_describe(request)}"
            case Lead(epoch, granting):
                self._log.append([self._entries.create(epoch)])
                return f"lead epoch {epoch}, elected by {','.join(map(str, granting))}"
            case Follow(epoch, leader_id):
                return f"report leader {_node(leader_id)} in epoch {epoch}"
            case Append(records):
                entries = self._entries.decode(records)
                self._log.append(entries)
                self.core.appended(self._now_ms)
                return f"append {len(entries)}, log ends at {self._log.end_offset}"
            case Truncate(offset):
                self._log.truncate_to(offset)
                self.core.truncated(offset, self._now_ms)
                self.core.appended(self._now_ms)
                return f"truncate to {offset}"
            case WritePage(snapshot, position, data, is_last):
                if is_last:
                    self._log.install(snapshot, [])
                    self.core.snapshot_installed(snapshot, self._now_ms)
                else:
                    self.core.appended(self._now_ms)
                return f"write {len(data)} bytes of snapshot {snapshot.end_offset} at {position}" + (
                    ", complete" * is_last
                )
            case Advanced(high_watermark):
                return f"high watermark {high_watermark}"

    def _show_role(self) -> list[str]:
        role = self.core.role
        text = f"{type(role).__name__.lower()} in epoch {role.epoch}"
        if isinstance(role, Follower):
            text += f" of {role.leader_id}"
        if text == self._shown_role:
            return []
        self._shown_role = text
        return [text]

    def _describe_fetch(self, reply: FetchReply) -> str:
        text = _describe_reply(reply)
        if reply.diverging is not None:
            text += f", diverging from {reply.diverging[1]} in epoch {reply.diverging[0]}"
        if reply.snapshot is not None:
            text += f", snapshot {reply.snapshot.end_offset}"
        if reply.error is ErrorCode.NONE:
            text += (
                f", {len(self._entries.decode(reply.records))} records, high watermark {reply.high_watermark}"
            )
        return text


def _half(bound: int) -> int:
    return bound // 2


def _pair(text: str) -> tuple[int, int]:
    first, second = text.split(":")
    return int(first), int(second)


def _node(node_id: int) -> str:
    return "-" if node_id == NO_LEADER else str(node_id)


def _describe(request: Request) -> str:
    match request:
        case Vote(epoch, _, _, last_epoch, end_offset, is_pre_vote):
            kind = "pre-vote" if is_pre_vote else "vote"
            return f"{kind} in epoch {epoch} with log {last_epoch}:{end_offset}"
        case BeginEpoch(epoch):
            return f"begin epoch {epoch}"
        case EndEpoch(epoch, _, candidates):
            return f"end epoch {epoch}, candidates {','.join(str(each.id) for each in candidates)}"
        case Fetch(epoch, _, offset, last_epoch, high_watermark):
            return (
                f"fetch {offset} after epoch {last_epoch} in epoch {epoch}, high watermark {high_watermark}"
            )
        case FetchSnapshot(epoch, _, snapshot, position):
            return f"fetch snapshot {snapshot.end_offset} at {position} in epoch {epoch}"
        case UpdateVoter(epoch):
            return f"update voter in epoch {epoch}"
        case AddVoter(epoch, voter):
            return f"add voter {voter.id} in epoch {epoch}"
        case RemoveVoter(epoch, voter):
            return f"remove voter {voter.id} in epoch {epoch}"


def _describe_reply(reply: Reply) -> str:
    text = f"{reply.error.name} epoch {reply.epoch}, leader {_node(reply.leader_id)}"
    if isinstance(reply, VoteReply):
        text += ", granted" if reply.is_granted else ", not granted"
    return text
