"""The HTTP of the admin listener: heads of GET requests to requests, statuses to heads of responses.

Requests have no body, and limits that every scraper and load balancer keeps. What is wrong with a request is
answered, and its connection is closed.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass

HEAD_BYTES_MAX = 8 * 1024
TARGET_BYTES_MAX = 2 * 1024
PARAMETERS_MAX = 1_000

REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    421: "Misdirected Request",
    408: "Request Timeout",
    414: "URI Too Long",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
    505: "HTTP Version Not Supported",
}
TEXT = "text/plain; charset=utf-8"

_TOKEN = frozenset("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")


class BadRequest(Exception):
    """A request that cannot be served; the status says why."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request for a page."""

    path: str
    query: Mapping[str, list[str]]
    """Parameters by name; those without a value have an empty one."""
    is_head: bool
    """Are only the headers wanted?"""
    keeps_open: bool
    """May another request follow on the connection?"""
    host: str = ""
    """The Host header."""


def parse_head(head: bytes) -> HttpRequest:
    """The request whose head, with the empty line at its end, this is. Raises BadRequest."""
    try:
        line, *header_lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
        method, target, version = line.split(" ")
    except ValueError:
        raise BadRequest(400, "the request line is not METHOD TARGET VERSION") from None
    if not method or not _TOKEN.issuperset(method):
        raise BadRequest(400, "the method is malformed")
    if version not in ("HTTP/1.1", "HTTP/1.0"):
        is_version = version.startswith("HTTP/")
        raise BadRequest(505 if is_version else 400, "the version must be HTTP/1.1 or HTTP/1.0")
    headers = _headers(header_lines)
    if method not in ("GET", "HEAD"):
        raise BadRequest(405, "only GET and HEAD are allowed")
    if len(target) > TARGET_BYTES_MAX:
        raise BadRequest(414, f"the path has more than {TARGET_BYTES_MAX} bytes")
    if "transfer-encoding" in headers or headers.get("content-length", "0") != "0":
        raise BadRequest(400, "a request has no body here")
    path, query = _target(target)
    tokens = {token.strip().lower() for token in headers.get("connection", "").split(",")}
    keeps_open = "keep-alive" in tokens if version == "HTTP/1.0" else "close" not in tokens
    return HttpRequest(path, query, method == "HEAD", keeps_open, headers.get("host", ""))


def _headers(lines: list[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or not _TOKEN.issuperset(name):
            raise BadRequest(400, "a header is malformed")
        # A list in several lines is one list.
        before = headers.get(name.lower())
        headers[name.lower()] = value.strip() if before is None else f"{before},{value.strip()}"
    return headers


def _target(target: str) -> tuple[str, dict[str, list[str]]]:
    # Imported here: the start of a broker does not need it.
    from urllib.parse import parse_qs, unquote

    if not target.startswith("/") or not target.isprintable():
        raise BadRequest(400, "the path does not begin with /")
    path, _, query = target.partition("#")[0].partition("?")
    try:
        parameters = parse_qs(query, keep_blank_values=True, max_num_fields=PARAMETERS_MAX)
    except ValueError:
        raise BadRequest(400, f"there are more than {PARAMETERS_MAX} parameters") from None
    return unquote(path), parameters


def is_known_host(host: str, names: Container[str]) -> bool:
    """Is the value of a Host header an IP address or one of these names, with any port?

    A web page can have a name of its own resolved to this machine (DNS rebinding), and would then be allowed
    to read what is served here. Addresses cannot be rebound.
    """
    # Imported here: the start of a broker does not need it.
    import ipaddress

    name = host.strip().lower()
    if name.startswith("["):
        name = name[1:].partition("]")[0]
    elif name.count(":") == 1:
        name = name.partition(":")[0]
    if name in names:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def response_head(status: int, content_type: str, length: int, *, keeps_open: bool) -> bytes:
    """The head of a response with a body of this length."""
    lines = [
        f"HTTP/1.1 {status} {REASONS.get(status, '')}",
        f"Content-Type: {content_type}",
        f"Content-Length: {length}",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        f"Connection: {'keep-alive' if keeps_open else 'close'}",
    ]
    if status == 405:
        lines.append("Allow: GET, HEAD")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
