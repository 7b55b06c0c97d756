"""Dialogs: forms that change something. Errors are shown in the form, which keeps what was entered."""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.responses import HTMLResponse, Response

from runnel.client.errors import ClientError
from runnel.gateway.console.pages import NO_STORE, Refused, Visit, described, log, read_form

Form = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Done:
    """A change that was made."""

    message: str
    go: str = ""
    """Where to go from here; the page is read again if it is empty."""


@dataclass(frozen=True, slots=True)
class Again:
    """Show the form again, with more: a preview."""

    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Dialog:
    """A form and what it does."""

    path: str
    template: str
    show: Callable[[Visit, Form], Awaitable[Mapping[str, Any]]]
    """Values for the form, from its address and what was entered so far."""
    act: Callable[[Visit, Form], Awaitable[Done | Again]]

    async def respond(self, visit: Visit) -> Response:
        """Show the form, or do what it says."""
        if visit.request.method == "GET":
            form = dict(visit.query)
            return await self._form(visit, form)
        if visit.request.headers.get("origin") is None:
            # Browsers always send it with a form; programs are to use the cluster's own protocol.
            raise Refused("changes are accepted from pages of this gateway only", 403)
        form = await read_form(visit.request, visit.session)
        try:
            result = await self.act(visit, form)
        except (ClientError, Refused) as error:
            message, status = described(error)
            return await self._form(visit, form, {"error": message}, status)
        if isinstance(result, Again):
            return await self._form(visit, form, result.values)
        log.info("%s: %s", visit.session.name or "anonymous", result.message)
        visit.data.invalidate()
        return _done(result)

    async def _form(
        self, visit: Visit, form: Form, more: Mapping[str, Any] | None = None, status: int = 200
    ) -> Response:
        values = {
            "error": "",
            "form": form,
            "action": visit.request.url.path,
            **await self.show(visit, form),
            **(more or {}),
        }
        return HTMLResponse(visit.render(self.template, **values), status, headers=NO_STORE)


def _done(result: Done) -> Response:
    # ASCII, as a header has to be.
    events = json.dumps({"done": {"message": result.message, "go": result.go}})
    return HTMLResponse("", headers={"HX-Trigger": events, "HX-Reswap": "none", **NO_STORE})


def required(form: Form, name: str, what: str) -> str:
    """A field that must be filled in."""
    value = form.get(name, "").strip()
    if not value:
        raise Refused(f"enter {what}")
    return value


def whole(form: Form, name: str, what: str, *, least: int = 0, most: int = 2**63 - 1) -> int | None:
    """A field with a whole number; None if it is empty."""
    text = form.get(name, "").strip()
    if not text:
        return None
    if not text.isdecimal() or len(text) > 19 or not least <= int(text) <= most:
        raise Refused(f"{what} must be a whole number" + (f" of at least {least}" if least else ""))
    return int(text)


def confirmed(form: Form, name: str) -> None:
    """A change that loses something needs the name of what is lost."""
    if form.get("confirm", "").strip() != name:
        raise Refused(f"to confirm, enter the name: {name}")
