"""A client of a schema registry's REST API, Runnel's or another one."""

import http.client
import json
from base64 import b64encode
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from runnel.client.errors import ClientError

MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"
TIMEOUT_S = 60.0
RESPONSE_BYTES_MAX = 256 * 1024 * 1024


class RegistryUnavailable(ClientError):
    """The registry did not answer, or not as a registry does."""


class RegistryRefused(ClientError):
    """The registry answered with an error."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(f"{message} ({code})" if code else message)
        self.status = status
        self.code = code


class SchemaRegistry:
    """Sends requests to a registry."""

    def __init__(self, url: str, user: str | None = None) -> None:
        """`user` is NAME:PASSWORD."""
        parts = urlsplit(url if "//" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise RegistryUnavailable(f"{url!r} is not an address such as http://127.0.0.1:8080")
        if parts.username is not None or parts.password is not None:
            # The address is part of error messages.
            raise RegistryUnavailable("a registry's address has no user and password: give them separately")
        self._url = url
        self._host, self._port, self._path = parts.hostname, parts.port, parts.path.rstrip("/")
        self._is_tls = parts.scheme == "https"
        self._headers = {"Accept": MEDIA_TYPE, "Content-Type": MEDIA_TYPE}
        if user is not None:
            self._headers["Authorization"] = "Basic " + b64encode(user.encode()).decode()

    def subjects(self, *, prefix: str | None = None, deleted: bool = False) -> list[str]:
        """Names of subjects."""
        query = {"deleted": str(deleted).lower(), **({} if prefix is None else {"subjectPrefix": prefix})}
        found: list[str] = self._get("/subjects", query)
        return found

    def latest_schemas(self, *, prefix: str | None = None, deleted: bool = False) -> list[dict[str, Any]]:
        """The latest version of each subject, in pages."""
        found: list[dict[str, Any]] = []
        query = {"latestOnly": "true", "deleted": str(deleted).lower(), "limit": "1000"}
        if prefix is not None:
            query["subjectPrefix"] = prefix
        while True:
            page = self._get("/schemas", {**query, "offset": str(len(found))})
            found += page
            if len(page) < 1000:
                return found

    def version(self, subject: str, version: str = "latest", *, deleted: bool = False) -> dict[str, Any]:
        """A version of a subject; `deleted`: also one that is soft-deleted."""
        path = f"/subjects/{_segment(subject)}/versions/{_segment(version)}"
        found: dict[str, Any] = self._get(path, {"deleted": "true"} if deleted else {})
        return found

    def versions(self, subject: str) -> list[int]:
        """The numbers of versions of a subject."""
        found: list[int] = self._get(f"/subjects/{_segment(subject)}/versions")
        return found

    def by_id(self, schema_id: int) -> dict[str, Any]:
        """A schema by its id."""
        found: dict[str, Any] = self._get(f"/schemas/ids/{schema_id}")
        return found

    def level(self, subject: str) -> str:
        """The level of compatibility that applies to a subject."""
        found = self._get(f"/config/{_segment(subject)}", {"defaultToGlobal": "true"})
        return str(found["compatibilityLevel"])

    def register(self, subject: str, schema: Mapping[str, Any], *, normalize: bool = False) -> dict[str, Any]:
        """Register a schema; returns id and version."""
        path = f"/subjects/{_segment(subject)}/versions"
        found: dict[str, Any] = self._request("POST", path, {"normalize": str(normalize).lower()}, schema)
        return found

    def look_up(self, subject: str, schema: Mapping[str, Any]) -> dict[str, Any]:
        """The version of a subject that has a schema; returns id and version."""
        found: dict[str, Any] = self._request("POST", f"/subjects/{_segment(subject)}", {}, schema)
        return found

    def incompatibilities(
        self, subject: str, schema: Mapping[str, Any], version: str | None = None
    ) -> list[str]:
        """Why a schema could not be registered; empty if it could."""
        path = f"/compatibility/subjects/{_segment(subject)}/versions"
        if version is not None:
            path += f"/{_segment(version)}"
        found = self._request("POST", path, {"verbose": "true"}, schema)
        if found["is_compatible"]:
            return []
        return list(found.get("messages") or ["the schema is not compatible"])

    def _get(self, path: str, query: Mapping[str, str] | None = None) -> Any:
        return self._request("GET", path, query or {})

    def _request(self, method: str, path: str, query: Mapping[str, str], body: Any = None) -> Any:
        target = self._path + path + (f"?{urlencode(query)}" if query else "")
        kind = http.client.HTTPSConnection if self._is_tls else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=TIMEOUT_S)
        try:
            data = None if body is None else json.dumps(body).encode()
            connection.request(method, target, data, self._headers)
            response = connection.getresponse()
            text = response.read(RESPONSE_BYTES_MAX)
        except (OSError, http.client.HTTPException) as error:
            raise RegistryUnavailable(
                f"no registry at {self._url}: {error or type(error).__name__}"
            ) from None
        finally:
            connection.close()
        try:
            found = json.loads(text)
        except ValueError:
            raise RegistryUnavailable(f"{self._url} answers {response.status} without JSON") from None
        if response.status >= 400:
            about = found if isinstance(found, dict) else {}
            message = str(about.get("message", f"HTTP {response.status}"))
            raise RegistryRefused(response.status, int(about.get("error_code", 0)), message)
        return found


def _segment(name: str) -> str:
    return quote(name, safe="")
