"""Lines of `sasl.jaas.config`: the login modules of Kafka whose options mean something here.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="secret";

The class is only a name to compare: nothing is loaded by it, whatever the line says.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from runnel.security.sasl_client import OAUTHBEARER, PLAIN, Credentials
from runnel.security.scram import SCRAM_HASHES

_PACKAGE = "org.apache.kafka.common.security."
PLAIN_MODULE = f"{_PACKAGE}plain.PlainLoginModule"
SCRAM_MODULE = f"{_PACKAGE}scram.ScramLoginModule"
OAUTHBEARER_MODULE = f"{_PACKAGE}oauthbearer.OAuthBearerLoginModule"
MODULES = {
    PLAIN: PLAIN_MODULE,
    **dict.fromkeys(SCRAM_HASHES, SCRAM_MODULE),
    OAUTHBEARER: OAUTHBEARER_MODULE,
}
"""The login module of each mechanism."""

_FLAGS = ("required", "requisite", "sufficient", "optional")
_TOKEN = re.compile(
    r"""(?P<skipped>\s+ | //[^\n]* | /\*.*?\*/)
      | "(?P<quoted>(?:[^"\\\n] | \\.)*)"
      | (?P<word>[\w.$-]+)
      | (?P<sign>[=;])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_ESCAPED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_USER_PREFIX = "user_"
_EXTENSION_PREFIX = "extension_"


class InvalidJaas(ValueError):
    """A line that cannot be parsed. The text is not repeated: it contains passwords."""


@dataclass(frozen=True, slots=True)
class JaasLine:
    """One login module with its options, which are not shown."""

    module: str
    options: Mapping[str, str] = field(repr=False)

    @property
    def users(self) -> dict[str, str]:
        """The users of a server's PlainLoginModule with their passwords."""
        return {
            name.removeprefix(_USER_PREFIX): value
            for name, value in self.options.items()
            if name.startswith(_USER_PREFIX)
        }

    def credentials(self) -> Credentials | None:
        """What a client with this line authenticates as; None if it names no user and no token."""
        extensions = {
            name.removeprefix(_EXTENSION_PREFIX): value
            for name, value in self.options.items()
            if name.startswith(_EXTENSION_PREFIX)
        }
        username, token = self.options.get("username", ""), self.options.get("token", "")
        if not username and not token:
            return None
        is_token = self.options.get("tokenauth", "").lower() == "true"
        return Credentials(username, self.options.get("password", ""), is_token, token, extensions)


def read_jaas(text: str, mechanism: str) -> JaasLine:
    """Parse the line of a mechanism: exactly one login module, which must be the mechanism's own."""
    tokens = _tokens(text)
    module = _expect(tokens, "a login module")
    if module != MODULES.get(mechanism):
        raise InvalidJaas(
            f"the login module of {mechanism} is {MODULES.get(mechanism)}; other classes are not loaded"
        )
    if _expect(tokens, "a control flag").lower() not in _FLAGS:
        raise InvalidJaas(f"the login module must be followed by one of {', '.join(_FLAGS)}")
    options: dict[str, str] = {}
    while (name := _expect(tokens, "an option or a semicolon", signs=";")) != ";":
        if _expect(tokens, f"a value of {name}", signs="=") != "=":
            raise InvalidJaas(f"the option {name} has no value")
        options[name] = _expect(tokens, f"a value of {name}")
    if next(tokens, None) is not None:
        raise InvalidJaas("more than one login module")
    return JaasLine(module, options)


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise InvalidJaas(f"unexpected character at position {position}")
        position = found.end()
        if found["quoted"] is not None:
            yield "text", _ESCAPE.sub(_unescape, found["quoted"])
        elif found["word"] is not None:
            yield "text", found["word"]
        elif found["sign"] is not None:
            yield "sign", found["sign"]


def _unescape(found: re.Match[str]) -> str:
    escape = found[1]
    return chr(int(escape, 8)) if escape[0] in "01234567" else _ESCAPED.get(escape, escape)


def _expect(tokens: Iterator[tuple[str, str]], what: str, signs: str = "") -> str:
    kind, token = next(tokens, ("sign", ""))
    if kind == "sign" and (not token or token not in signs):
        raise InvalidJaas(f"expected {what}" + (f" instead of {token}" if token else ", the line ends"))
    return token
