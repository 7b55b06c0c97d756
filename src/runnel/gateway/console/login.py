"""Login and logout, where the cluster's listener asks for credentials."""

from typing import TYPE_CHECKING

from starlette.responses import HTMLResponse, RedirectResponse, Response

from runnel.gateway.console.pages import NO_STORE, Refused, log, read_form, session_token
from runnel.gateway.console.templates_of import environment
from runnel.gateway.sessions import COOKIE, MECHANISMS, LoginFailed

if TYPE_CHECKING:
    from starlette.requests import Request

    from runnel.gateway.app import Gateway

START = "/console/"
FORM_BYTES_MAX = 64 * 1024
"""A name and a password, or a token: all who can reach the gateway may send them."""

STRANGERS = "strangers"
"""Who has the share of bodies that people have before they log in."""


async def login(request: "Request") -> Response:
    """The form, and what it does."""
    gateway: Gateway = request.app.state.gateway
    target = safe_target(request.query_params.get("to", START))
    if gateway.sessions.of(session_token(request)) is not None:
        return RedirectResponse(target, 303, headers=NO_STORE)
    if request.method == "GET":
        return _form(gateway, target)
    try:
        form = await read_form(request, STRANGERS, FORM_BYTES_MAX)
        username = form.get("username", "").strip()
        token = await gateway.sessions.login(form.get("mechanism", ""), username, form.get("password", ""))
    except (LoginFailed, Refused) as error:
        return _form(gateway, target, str(error), error.status)
    log.info("%s: logged in", username or "token")
    response = RedirectResponse(target, 303, headers=NO_STORE)
    is_https = request.url.scheme == "https"
    response.set_cookie(COOKIE, token, httponly=True, samesite="strict", secure=is_https, path="/")
    return response


async def logout(request: "Request") -> Response:
    """End the session."""
    gateway: Gateway = request.app.state.gateway
    await gateway.sessions.logout(session_token(request))
    response = RedirectResponse("/console/login", 303, headers=NO_STORE)
    response.delete_cookie(COOKIE, path="/")
    return response


def safe_target(target: str) -> str:
    """A page of the console; nothing that leads elsewhere."""
    is_own = target.startswith(START) and "\\" not in target and "//" not in target
    return target if is_own and target.isprintable() else START


def _form(gateway: "Gateway", target: str, error: str = "", status: int = 200) -> Response:
    page = (
        environment()
        .get_template("login.html")
        .render(
            title="Log in",
            error=error,
            target=target,
            mechanisms=MECHANISMS,
            bootstrap=gateway.options.bootstrap,
        )
    )
    return HTMLResponse(page, status, headers=NO_STORE)
