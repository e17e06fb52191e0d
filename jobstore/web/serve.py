"""
Serving the page by itself, on this machine unless told otherwise.
"""

import contextlib
import ipaddress
import socket
from collections.abc import Callable, Iterable, Iterator

import uvicorn
from starlette.types import ASGIApp

from jobstore.errors import InvalidInput
from jobstore.web.guards import LOCAL_HOSTS

__all__ = ["Address", "hosts_for", "listening", "resolve", "serve"]

Address = tuple[socket.AddressFamily, tuple[str, int]]


def resolve(listen: str) -> tuple[str, list[Address]]:
    """
    Read ``HOST:PORT`` or ``[IPV6]:PORT``; return the host as written, and addresses.

    Raises:
        InvalidInput: It is no such thing, or the name leads nowhere.
    """
    host, colon, port = listen.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit():
        raise InvalidInput("listen", listen, "must be like 127.0.0.1:8080")
    if int(port) > 65_535:
        raise InvalidInput("listen", listen, "has no such port")
    bare = host.removeprefix("[").removesuffix("]")
    if ":" in bare and bare == host:
        raise InvalidInput("listen", listen, "an IPv6 address stands in brackets")
    try:
        found = socket.getaddrinfo(bare, int(port), type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise InvalidInput("listen", listen, f"cannot be resolved: {error}") from None
    return host, [
        (family, (str(where[0]), int(where[1]))) for family, _, _, _, where in found
    ]


def is_local(addresses: Iterable[Address]) -> bool:
    """
    Say whether all addresses are this machine's own, out of reach for others.
    """
    return all(
        ipaddress.ip_address(where[0].partition("%")[0]).is_loopback
        for _, where in addresses
    )


def hosts_for(host: str, allowed: Iterable[str]) -> list[str]:
    """
    Return the names to answer to: local ones, the one bound, and those allowed.
    """
    return [*LOCAL_HOSTS, host, *allowed]


@contextlib.contextmanager
def listening(addresses: Iterable[Address]) -> Iterator[socket.socket]:
    """
    Listen on the first address that can be bound.
    """
    failed: OSError | None = None
    for family, where in addresses:
        try:
            made = socket.create_server(where, family=family)
        except OSError as error:
            failed = error
            continue
        with made:
            yield made
        return
    raise failed or OSError("no address")


def serve(app: ASGIApp, listener: socket.socket, *, told: Callable[[], None]) -> None:
    """
    Serve until SIGINT or SIGTERM. *told* is called when visitors are welcome.
    """

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            told()

    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        # Forwarding headers are a visitor's words, whoever sent them on.
        proxy_headers=False,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=5,
        limit_concurrency=100,
        h11_max_incomplete_event_size=16 * 1024,
    )
    Server(config).run(sockets=[listener])
