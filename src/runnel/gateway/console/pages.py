"""Pages: a frame that is sent at once, and content that may follow.

    browser ── GET page ──► content within PATIENCE_S? frame with content : frame without ──► GET content

The same address has both: a request of htmx gets the content, any other the whole page. So the state of a
page is in its address, and every address can be opened by itself.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote

from starlette.responses import HTMLResponse, RedirectResponse, Response

from runnel.client.cluster import Cluster
from runnel.client.errors import AuthenticationFailed, BrokerError, ClientError
from runnel.gateway.cluster_data import ClusterData
from runnel.gateway.console.templates_of import environment
from runnel.gateway.console.text import moment
from runnel.gateway.http.bodies import Body
from runnel.gateway.http.problems import Problem
from runnel.gateway.sessions import Session, token_of
from runnel.model.errors import ErrorCode

if TYPE_CHECKING:
    from starlette.requests import Request

    from runnel.gateway.app import Gateway

PATIENCE_S = 0.15
"""How long a frame waits for its content."""

BODY_BYTES_MAX = 4 * 1024 * 1024
FIELDS_MAX = 20_000
"""Fields of a form: that of a reset has one for each partition of the group."""
NO_STORE = {"cache-control": "no-store", "vary": "HX-Request"}
NOT_FOUND = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
}
DENIED = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}

log = logging.getLogger("runnel.console")


class Refused(Exception):
    """A request cannot be carried out as it is; the message is shown to the person."""

    def __init__(self, message: str, status: int = 422) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Visit:
    """A request of a person with a session."""

    request: "Request"
    session: Session
    gateway: "Gateway"

    @property
    def data(self) -> ClusterData:
        return self.session.data

    @property
    def cluster(self) -> Cluster:
        return self.session.cluster

    @property
    def query(self) -> Mapping[str, str]:
        return self.request.query_params

    @property
    def is_read_only(self) -> bool:
        return self.gateway.options.read_only

    def path(self, name: str) -> str:
        """A part of the path."""
        return str(self.request.path_params[name])

    def number(self, name: str, default: int = 0, *, most: int = 2**63 - 1) -> int:
        """A number of the query; the default if it is none."""
        text = self.query.get(name, "")
        return min(int(text), most) if text.isdecimal() and len(text) < 20 else default

    def render(self, template: str, **context: Any) -> str:
        """A template with what all templates know."""
        return (
            environment()
            .get_template(template)
            .render(
                can_change=not self.is_read_only,
                user=self.session.name,
                bootstrap=self.gateway.options.bootstrap,
                **context,
            )
        )


@dataclass(frozen=True, slots=True)
class Content:
    """The content of a page: a template and its values."""

    template: str
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Page:
    """A page: where it is, what it shows, and how often it is read again."""

    path: str
    title: str
    """May contain names of the path in braces."""
    section: str
    content: Callable[[Visit], Awaitable[Content]]
    toolbar: str = ""
    """The template above the content, which live updates leave alone."""
    tabs: str = ""
    """The template with the tabs of an object that has several pages."""
    live_ms: int = 0

    async def respond(self, visit: Visit) -> Response:
        """The content for htmx, else the whole page."""
        headers = visit.request.headers
        if headers.get("hx-request") == "true" and headers.get("hx-history-restore-request") != "true":
            return await self._content(visit)
        if visit.data.catalogue.is_cold:
            # The first answer of a large cluster takes long to read.
            return self._frame(visit, None, 200)
        task = asyncio.create_task(self._content(visit))
        done, _ = await asyncio.wait({task}, timeout=PATIENCE_S)
        if done:
            early = task.result()
            return self._frame(visit, bytes(early.body).decode(), early.status_code)
        # What it fetches is shared: the request that follows finds it, or waits for it.
        task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        return self._frame(visit, None, 200)

    async def _content(self, visit: Visit) -> Response:
        try:
            content = await self.content(visit)
            return HTMLResponse(visit.render(content.template, **content.values), headers=NO_STORE)
        except (ClientError, Refused) as error:
            return error_response(visit, error)

    def _frame(self, visit: Visit, content: str | None, status: int) -> Response:
        names = {name: str(value) for name, value in visit.request.path_params.items()}
        title = self.title.format(**names, **{"id": visit.query.get("id", "")})
        page = visit.render(
            "frame.html",
            title=title,
            section=self.section,
            content=content,
            toolbar=self.toolbar,
            tabs=self.tabs,
            live_ms=self.live_ms,
            address=_own_address(visit.request),
            names=names,
            query_values=visit.query,
            as_of=_as_of(visit.query),
            path=visit.request.url.path,
        )
        return HTMLResponse(page, status, headers=NO_STORE)


def _as_of(query: Mapping[str, str]) -> str:
    """The time that a page is about; empty: now."""
    # Imported here: it uses what is defined above.
    from runnel.gateway.console.moments import AS_OF, as_of_ms

    try:
        at_ms = as_of_ms(query)
    except Refused:
        return query[AS_OF]
    return "" if at_ms is None else f"{moment(at_ms)[:19]} UTC"


def _own_address(request: "Request") -> str:
    query = request.url.query
    return request.url.path + (f"?{query}" if query else "")


def error_response(visit: Visit, error: Exception) -> Response:
    """An error in place of the content."""
    message, status = described(error)
    html = visit.render("error.html", message=message, status=status)
    return HTMLResponse(html, status, headers=NO_STORE)


def described(error: Exception) -> tuple[str, int]:
    """The message that is shown for an error, and its HTTP status."""
    if isinstance(error, Refused):
        return str(error), error.status
    if isinstance(error, AuthenticationFailed):
        return str(error), 401
    if isinstance(error, BrokerError):
        if error.error in NOT_FOUND:
            return str(error), 404
        if error.error in DENIED:
            return str(error), 403
        return str(error), 503 if error.retriable else 422
    return str(error), 503


Endpoint = Callable[["Request"], Awaitable[Response]]


def endpoint(handler: Callable[[Visit], Awaitable[Response]]) -> Endpoint:
    """A handler for people with a session; others are sent to the login."""

    async def respond(request: "Request") -> Response:
        gateway: Gateway = request.app.state.gateway
        session = gateway.sessions.of(session_token(request))
        if session is None:
            return login_redirect(request)
        visit = Visit(request, session, gateway)
        try:
            return await handler(visit)
        except (ClientError, Refused) as error:
            return error_response(visit, error)

    return respond


def session_token(request: "Request") -> str | None:
    """The token of a session that a request has."""
    return token_of(request.headers.getlist("cookie"))


def login_redirect(request: "Request") -> Response:
    """To the login, and back."""
    if request.headers.get("hx-request") == "true":
        # The page that holds the fragment is loaded again, and is then sent to the login.
        return Response(status_code=401, headers={"HX-Refresh": "true", **NO_STORE})
    return RedirectResponse(f"/console/login?to={quote(_own_address(request))}", 303, headers=NO_STORE)


async def read_form(request: "Request", owner: object, bytes_max: int = BODY_BYTES_MAX) -> dict[str, str]:
    """The fields of a form; the last one of a name. Until then, its owner has a share of all bodies."""
    if not request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        raise Refused("only forms are accepted here", 415)
    gateway: Gateway = request.app.state.gateway
    try:
        with Body(request, gateway.api.bodies, owner) as given:
            # In a thread, as there may be a million escapes.
            return await asyncio.to_thread(_fields, await given.whole(bytes_max))
    except Problem as problem:
        raise Refused(
            "the form is too large" if problem.status == 413 else str(problem), problem.status
        ) from None


def _fields(body: bytes) -> dict[str, str]:
    try:
        return dict(
            parse_qsl(
                body.decode("utf-8"),
                keep_blank_values=True,
                strict_parsing=bool(body),
                max_num_fields=FIELDS_MAX,
            )
        )
    except ValueError:
        raise Refused("the form is malformed", 400) from None
