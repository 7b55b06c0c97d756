"""The states of a connection that authenticates, as transcripts.

at MS                     the time is now MS milliseconds
api KEY                   may a request with this API key be decoded?
versions                  ApiVersions was answered
handshake MECHANISM V     SaslHandshake of version V
login USER PASSWORD       the whole exchange of a client with the selected mechanism
token TEXT                one token; \\0 is a NUL
work                      the thread is done
"""

from functools import partial
from pathlib import Path

import pytest

from runnel.security.plain_server import PlainUsers
from runnel.security.principal import Principal
from runnel.security.sasl_client import Credentials, client_mechanism
from runnel.security.sasl_server import (
    Accepted,
    AuthenticationFailed,
    Challenge,
    IllegalState,
    Moment,
    OfferedMechanism,
    SaslExchange,
    Unanswerable,
    UnsupportedMechanism,
    Work,
)
from runnel.security.scram import SCRAM_HASHES, salted_password, verifier_of
from runnel.security.scram_server import ScramServer, ScramUsers, TokenIdentity
from tests.scripts import Script, scripts

HERE = Path(__file__).parent / "exchanges"
REFUSALS = (AuthenticationFailed, IllegalState, Unanswerable, UnsupportedMechanism)
PASSWORDS = {"bob": "bob-secret"}
"""Users with SCRAM credentials."""


def verifier(mechanism, user):
    if user not in PASSWORDS:
        return None
    algorithm = SCRAM_HASHES[mechanism]
    salted = salted_password(algorithm, PASSWORDS[user], b"salt", 4096)
    return verifier_of(algorithm, salted, b"salt", 4096)


def token(token_id):
    owners = {"t1": 5000, "t2": 1}
    if token_id not in owners:
        return None
    return TokenIdentity(Principal("User", "carol", is_by_token=True), f"{token_id}-hmac", owners[token_id])


def offered(session_ms_max=3000):
    plain = PlainUsers({"alice": "alice-secret"}, verifier, b"secret")
    users = ScramUsers(verifier, token, b"secret")
    return {
        "PLAIN": OfferedMechanism(plain.begin, session_ms_max),
        **{
            name: OfferedMechanism(partial(ScramServer, name, users, "server"), session_ms_max)
            for name in SCRAM_HASHES
        },
    }


class World:
    """One connection."""

    def __init__(self) -> None:
        self.exchange = SaslExchange(offered())
        self.now = Moment(0, 0)
        self.work: Work | None = None

    def play(self, command: str) -> list[str]:
        name, *arguments = command.split()
        try:
            return [getattr(self, name)(*arguments)]
        except REFUSALS as refusal:
            return [f"{type(refusal).__name__}: {refusal}"]

    def at(self, ms: str) -> str:
        self.now = Moment(int(ms), int(ms))
        return "expired" if self.exchange.has_expired(self.now) else "valid"

    def api(self, key: str) -> str:
        self.exchange.check(int(key), self.now)
        return "may be decoded"

    def versions(self) -> str:
        self.exchange.versions_sent()
        return self.exchange.state.name

    def handshake(self, mechanism: str, version: str) -> str:
        self.exchange.handshake(mechanism, int(version), self.now)
        return self.exchange.state.name + (", bare tokens" if self.exchange.expects_bare_tokens else "")

    def token(self, text: str = "") -> str:
        return self.shown(self.exchange.receive(text.replace("\\0", "\0").encode(), self.now))

    def work_done(self) -> Challenge | Accepted:
        work, self.work = self.work, None
        assert work is not None
        outcome: Challenge | Accepted | AuthenticationFailed
        try:
            outcome = work.run()
        except AuthenticationFailed as failure:
            outcome = failure
        return self.exchange.settle(outcome, self.now)

    def done(self) -> str:
        return self.shown(self.work_done())

    def login(self, user: str, password: str) -> str:
        is_token = password.endswith("-hmac")
        client = client_mechanism(
            self.exchange.mechanism, Credentials(user, password, is_token=is_token), "client"
        )
        message: bytes | None = client.first()
        round_trips = 0
        while message is not None:
            step = self.exchange.receive(message, self.now)
            if isinstance(step, Work):
                self.work = step
                step = self.work_done()
            round_trips += 1
            message = client.respond(step.token)
        assert isinstance(step, Accepted)
        return f"{self.shown(step)} after {round_trips} round trips"

    def shown(self, step) -> str:
        if isinstance(step, Work):
            self.work = step
            return "work"
        if isinstance(step, Accepted):
            lifetime = self.exchange.session_lifetime_ms
            by_token = " by token" if step.principal.is_by_token else ""
            return f"{step.principal}{by_token}, for {lifetime} ms"
        return f"challenge {step.token.decode()}"


@pytest.mark.parametrize("mechanism", SCRAM_HASHES)
def test_scram_messages_are_not_parsed_if_they_are_long(mechanism) -> None:
    users = ScramUsers(verifier, token, b"secret")
    first = b"n,,n=bob,r=client"
    server = ScramServer(mechanism, users, "server")
    with pytest.raises(AuthenticationFailed, match="a message of 8193 bytes"):
        server.receive(first.ljust(8193, b"c"), 0)
    assert isinstance(server.receive(first.ljust(8192, b"c"), 0), Challenge)
    with pytest.raises(AuthenticationFailed, match="a message of 8193 bytes"):
        server.receive(b"c=biws,r=".ljust(8193, b"c"), 0)


@pytest.mark.parametrize("script", scripts(HERE), ids=lambda script: script.name)
def test_exchange(script: Script, rewrite: bool) -> None:
    worlds = [World()]

    def play(command: str) -> list[str]:
        if command == "new":
            worlds[:] = [World()]
            return ["INITIAL"]
        return worlds[0].play(command)

    script.check(play, rewrite=rewrite)
