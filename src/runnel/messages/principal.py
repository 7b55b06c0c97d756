"""The principal of a client in an Envelope request."""

from __future__ import annotations

from runnel.wire import Data, boolean, string

PRINCIPAL_VERSION = 0


class DefaultPrincipalData(Data, versions="0", flexible="0+"):
    """A principal; an int16 with the version precedes it."""

    type: string = ""
    name: string = ""
    token_authenticated: boolean = False
