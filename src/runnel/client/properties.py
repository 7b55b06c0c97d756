"""Client properties by their Kafka names: `security.protocol`, `ssl.truststore.location`, `sasl.password`.

Names are those of Kafka's clients, and of librdkafka where it has its own. A value may contain references
(`references.py`), which are resolved only when a connection needs the value, in the process that opens it.
No value is ever shown: `repr` and errors contain names only.
"""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from os import PathLike, fspath

from runnel.client.errors import InvalidProperty
from runnel.client.references import read_text, resolved
from runnel.model.properties import BadProperties, parse_properties

PROPERTIES = frozenset(
    (
        "security.protocol",
        # TLS.
        "ssl.truststore.type",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.certificates",
        "ssl.keystore.type",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.key",
        "ssl.keystore.certificate.chain",
        "ssl.key.password",
        "ssl.enabled.protocols",
        "ssl.endpoint.identification.algorithm",
        # The same, by librdkafka's names.
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.key.location",
        "ssl.key.pem",
        "enable.ssl.certificate.verification",
        # SASL.
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.jaas.config",
        "sasl.username",
        "sasl.password",
        "sasl.oauthbearer.token",
        "sasl.oauthbearer.token.command",
        "sasl.oauthbearer.token.endpoint.url",
    )
)
"""The properties that this client implements."""
WITHOUT_EFFECT = (
    "ssl.protocol",
    "ssl.provider",
    "ssl.keymanager.algorithm",
    "ssl.trustmanager.algorithm",
    "ssl.secure.random.implementation",
    "sasl.login.",
    "sasl.kerberos.",
    "sasl.oauthbearer.",
    "security.providers",
)
"""Beginnings of names that Kafka's clients know and that need not have an effect here."""
_SECURITY = ("security.", "ssl.", "sasl.", "enable.ssl.")
_FILE = "the properties file"


class ClientProperties(Mapping[str, str]):
    """Properties by name. An unknown name of `ssl.`, `sasl.` or `security.` is an error, others are ignored.

    As a mapping it has the values as they were given, with their references.
    """

    __slots__ = ("_given",)

    def __init__(self, given: Mapping[str, str] | None = None) -> None:
        self._given = dict(given or {})
        for name in self._given:
            _check_name(name)

    @classmethod
    def from_file(cls, path: str | PathLike[str]) -> "ClientProperties":
        """Read a file in the format of Kafka's `--command-config`."""
        try:
            # Java reads the format as Latin-1; other characters are written as escapes.
            properties = parse_properties(read_text(fspath(path), _FILE, "latin-1"))
        except BadProperties as error:
            raise InvalidProperty(f"{fspath(path)} is not a valid properties file: {error}") from None
        return cls({name: value.strip() for name, value in properties.items()})

    @classmethod
    def from_assignments(cls, assignments: Iterable[str]) -> "ClientProperties":
        """Parse `name=value` texts."""
        given = {}
        for assignment in assignments:
            name, equals, value = assignment.partition("=")
            if not equals or not name.strip():
                # Not repeated: it may be a password.
                raise InvalidProperty("a client property is not of the form name=value")
            given[name.strip()] = value.strip()
        return cls(given)

    def with_more(self, more: Mapping[str, str]) -> "ClientProperties":
        """These properties and others, which take precedence."""
        return ClientProperties({**self._given, **more})

    def text(self, *names: str) -> str | None:
        """The value of the first of these names that is set, with its references resolved."""
        name = self.first_given(*names)
        return None if name is None else resolved(self._given[name], name)

    def first_given(self, *names: str) -> str | None:
        """The first of these names that is set."""
        return next((name for name in names if name in self._given), None)

    def required(self, name: str, why: str) -> str:
        """The value of a property that something else requires."""
        value = self.text(name)
        if not value:
            raise InvalidProperty(f"the property {name} is required {why}")
        return value

    def __getitem__(self, name: str) -> str:
        return self._given[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given)

    def __hash__(self) -> int:
        return hash(frozenset(self._given.items()))

    def __repr__(self) -> str:
        return f"ClientProperties({', '.join(sorted(self._given))})"


NO_PROPERTIES = ClientProperties()


def is_security_name(name: str) -> bool:
    """Is this a property of TLS, SASL or of the choice between them?"""
    return name.startswith(_SECURITY)


def _check_name(name: str) -> None:
    if name in PROPERTIES or not is_security_name(name) or name.startswith(WITHOUT_EFFECT):
        return
    close = difflib.get_close_matches(name, PROPERTIES, n=1, cutoff=0.85)
    if close:
        raise InvalidProperty(f"unknown property {name}; did you mean {close[0]}?")
    raise InvalidProperty(f"the property {name} is not supported; remove it")
