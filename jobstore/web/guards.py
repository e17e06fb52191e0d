"""
What stands in front of every page: the Host header, the token, and strict headers.

Nothing that a client can write into a header opens anything: forwarding headers are not
read at all, and Host and Origin can only close.
"""

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from jobstore.errors import InvalidInput

__all__ = [
    "LOCAL_HOSTS",
    "Gate",
    "SafeHeaders",
    "Token",
    "TrustedHosts",
    "check_token",
    "cookie",
    "is_same_origin",
]

LOCAL_HOSTS = ("localhost", "127.0.0.1", "[::1]")
"""Names that no stranger's DNS can point here."""

SESSION_COOKIE = "jobstore_session"
SESSION_SECONDS = 12 * 3600
SHORTEST_TOKEN = 16

_HOST = re.compile(r"([a-z0-9._-]{1,253}|\[[0-9a-f:.]{2,45}\])(?::[0-9]{1,5})?")

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; "
        "frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Not "no-referrer": browsers would say "null" for the origin of our own forms.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "X-Robots-Tag": "noindex, nofollow",
    "Cache-Control": "no-store",
}


def check_token(token: str) -> str:
    """
    Return *token* if it is hard enough to guess.

    Raises:
        InvalidInput: It is shorter than 16 characters, or not plain ASCII. The message
            does not repeat it.
    """
    if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable():
        raise InvalidInput(
            "token", "…", f"must be at least {SHORTEST_TOKEN} printable characters"
        )
    return token


class Token:
    """
    The token that opens the page, and the sessions that were opened with it.

    A session is its end and a signature by the token: nothing is kept here, another
    token ends them all, and the cookie does not hold the token itself.
    """

    def __init__(self, token: str) -> None:
        self._token = check_token(token)

    def matches(self, given: str) -> bool:
        # Digests have one length, so that the comparison tells none.
        return hmac.compare_digest(_digest(given), _digest(self._token))

    def new_session(self) -> str:
        body = f"{int(time.time()) + SESSION_SECONDS}.{secrets.token_hex(16)}"
        return f"{body}.{self._signature(body)}"

    def is_session(self, given: str) -> bool:
        body, _, signature = given.rpartition(".")
        if not hmac.compare_digest(_digest(signature), _digest(self._signature(body))):
            return False
        return int(body.partition(".")[0]) > time.time()

    def _signature(self, body: str) -> str:
        text = f"session {body}".encode(errors="replace")
        return hmac.digest(self._token.encode(), text, "sha256").hex()


class SafeHeaders:
    """
    Puts the headers that keep a browser in its place on every answer.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        await self._app(scope, receive, with_headers)


class TrustedHosts:
    """
    Answers only under names that are known to be its own.

    Otherwise a stranger's page could point a name of his at this machine, and read ours
    by it (DNS rebinding).
    """

    def __init__(self, app: ASGIApp, *, hosts: Iterable[str]) -> None:
        self._app = app
        self._hosts = frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self._knows(Headers(scope=scope)):
            await self._app(scope, receive, send)
            return
        answer = PlainTextResponse(
            "This name is not served here; see --allow-host.\n", status_code=421
        )
        await answer(scope, receive, send)

    def _knows(self, headers: Headers) -> bool:
        given = headers.getlist("host")
        match = _HOST.fullmatch(given[0].lower()) if len(given) == 1 else None
        return match is not None and match[1] in self._hosts


class Gate:
    """
    Lets in who has the token: in a session's cookie, or as a bearer.
    """

    def __init__(
        self, app: ASGIApp, *, token: Token, open_paths: Iterable[str]
    ) -> None:
        self._app = app
        self._token = token
        self._open = tuple(open_paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self._is_open(scope) or self._is_let_in(scope):
            await self._app(scope, receive, send)
            return
        is_page = scope["method"] in {"GET", "HEAD"} and "text/html" in Headers(
            scope=scope
        ).get("accept", "")
        answer = (
            RedirectResponse(f"{scope.get('root_path', '')}/login", status_code=303)
            if is_page
            else PlainTextResponse(
                "A token is needed.\n",
                status_code=401,
                headers={"WWW-Authenticate": "Bearer"},
            )
        )
        await answer(scope, receive, send)

    def _is_open(self, scope: Scope) -> bool:
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        return path in self._open

    def _is_let_in(self, scope: Scope) -> bool:
        connection = HTTPConnection(scope)
        given = connection.headers.get("authorization", "")
        scheme, _, bearer = given.partition(" ")
        if scheme.lower() == "bearer" and self._token.matches(bearer.strip()):
            return True
        return self._token.is_session(cookie(connection, SESSION_COOKIE))


def cookie(connection: HTTPConnection, name: str) -> str:
    """
    Return the value of a cookie, "" if there is none or it can't be read.
    """
    try:
        morsels = SimpleCookie(connection.headers.get("cookie", ""))
    except CookieError:
        return ""
    return morsels[name].value if name in morsels else ""


def is_same_origin(connection: HTTPConnection) -> bool:
    """
    Say whether a form came from a page of ours: browsers say so on every POST.
    """
    origin = connection.headers.getlist("origin")
    site = connection.headers.get("sec-fetch-site", "same-origin")
    if len(origin) != 1 or site != "same-origin":
        return False
    try:
        parts = urlsplit(origin[0].lower())
    except ValueError:
        return False
    host = connection.headers.get("host", "").lower()
    return (
        parts.scheme in {"http", "https"}
        and parts.netloc == host
        and (parts.path, parts.query, parts.fragment) == ("", "", "")
    )


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode(errors="replace")).digest()
