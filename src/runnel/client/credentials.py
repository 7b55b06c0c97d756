"""What a client authenticates with, from its properties."""

import shlex
import subprocess
from urllib.parse import unquote, urlsplit

from runnel.client.errors import InvalidProperty
from runnel.client.properties import ClientProperties
from runnel.client.references import is_reference, read_text, resolved
from runnel.security.jaas import InvalidJaas, JaasLine, read_jaas
from runnel.security.sasl_client import MECHANISMS, OAUTHBEARER, Credentials

COMMAND_TIMEOUT_S = 30.0

_JAAS = "sasl.jaas.config"
_TOKEN = "sasl.oauthbearer.token"
_COMMAND = "sasl.oauthbearer.token.command"
_URL = "sasl.oauthbearer.token.endpoint.url"


def read_credentials(properties: ClientProperties) -> tuple[str, Credentials]:
    """The name of the mechanism, and the credentials for it. Reads files and may run a command."""
    mechanism = properties.text("sasl.mechanism", "sasl.mechanisms") or ""
    if mechanism not in MECHANISMS:
        raise InvalidProperty(f"sasl.mechanism must be one of {', '.join(MECHANISMS)}")
    options = _jaas_options(properties, mechanism)
    if mechanism == OAUTHBEARER:
        token = _token(properties)
        if token:
            options["token"] = token
        elif not options.get("token"):
            raise InvalidProperty(
                f"OAUTHBEARER needs a token: set {_TOKEN} (such as ${{file:/path}}), {_COMMAND}, or {_URL} "
                "(file:///path)"
            )
    credentials = JaasLine(mechanism, options).credentials()
    if credentials is None:
        credentials = Credentials(
            properties.required("sasl.username", f"by {mechanism}, or sasl.jaas.config"),
            properties.required("sasl.password", f"by {mechanism}, or sasl.jaas.config"),
        )
    return mechanism, credentials


def _jaas_options(properties: ClientProperties, mechanism: str) -> dict[str, str]:
    """The options of sasl.jaas.config. References are resolved in them: a value may contain any character."""
    text = properties.get(_JAAS)
    if text is None:
        return {}
    try:
        line = read_jaas(resolved(text, _JAAS) if is_reference(text) else text, mechanism)
    except InvalidJaas as error:
        raise InvalidProperty(f"{_JAAS}: {error}") from None
    return {name: resolved(value, _JAAS) for name, value in line.options.items()}


def _token(properties: ClientProperties) -> str | None:
    token = properties.text(_TOKEN)
    if token is not None:
        return token.strip()
    command = properties.text(_COMMAND)
    if command is not None:
        return _output_of(command)
    url = properties.text(_URL)
    if url is None:
        return None
    parts = urlsplit(url)
    if parts.scheme != "file":
        raise InvalidProperty(f"{_URL}: only file:///path is supported; for others see {_COMMAND}")
    return read_text(unquote(parts.path), _URL).strip()


def _output_of(command: str) -> str:
    """What a command prints. Its output is not part of any error."""
    try:
        done = subprocess.run(
            shlex.split(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
    except (OSError, ValueError):
        raise InvalidProperty(f"{_COMMAND}: the command cannot be run") from None
    except subprocess.TimeoutExpired:
        raise InvalidProperty(f"{_COMMAND}: no result within {COMMAND_TIMEOUT_S:g} s") from None
    if done.returncode:
        raise InvalidProperty(f"{_COMMAND}: the command failed with status {done.returncode}")
    return done.stdout.decode("utf-8", "replace").strip()
