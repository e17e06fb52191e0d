"""
A TCP proxy that a test can make misbehave: cut, or hang, at a chosen message.
"""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

__all__ = ["Proxy"]

_CHUNK = 65536


class Proxy:
    """
    Forwards connections to a PostgreSQL that listens on a Unix socket or on TCP.

    *on_request* and *on_answer* see each chunk before it is forwarded, and say what to
    do with the connection: None forwards it, ``"drop"`` swallows the chunk and cuts the
    connection, ``"pass and cut"`` forwards it and cuts then, ``"hang"`` swallows this
    and everything after it.
    """

    def __init__(self, target: str | tuple[str, int]) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.on_request: Callable[[bytes], str | None] = lambda _: None
        self.on_answer: Callable[[bytes], str | None] = lambda _: None
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def refuse(self) -> None:
        """
        Take no more connections.
        """
        _end(self._listener)  # a close alone would leave the accept in progress

    def cut_all(self) -> None:
        """
        End all connections.
        """
        for one in self._sockets:
            _end(one)
        self._sockets.clear()

    def close(self) -> None:
        self.refuse()
        self.cut_all()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    server = self._connected()
                except OSError:  # it is down, and may come back
                    _end(client)
                    continue
                self._sockets += [client, server]
                is_cut = threading.Event()
                for source, sink, look in (
                    (client, server, self._look_at_request),
                    (server, client, self._look_at_answer),
                ):
                    threading.Thread(
                        target=_pump, args=(source, sink, look, is_cut), daemon=True
                    ).start()

    def _look_at_request(self, chunk: bytes) -> str | None:
        return self.on_request(chunk)

    def _look_at_answer(self, chunk: bytes) -> str | None:
        return self.on_answer(chunk)

    def _connected(self) -> socket.socket:
        if isinstance(self._target, str):
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(self._target)
            except OSError:
                server.close()
                raise
            return server
        return socket.create_connection(self._target)


def _pump(
    source: socket.socket,
    sink: socket.socket,
    look: Callable[[bytes], str | None],
    is_cut: threading.Event,
) -> None:
    hangs = False
    with contextlib.suppress(OSError):
        for chunk in _chunks(source):
            verdict = "hang" if hangs else look(chunk)
            if verdict == "hang":
                hangs = True
                continue
            if is_cut.is_set():
                break
            if verdict is not None:
                # Before it is passed on: the answer to it must not get through.
                is_cut.set()
            if verdict != "drop":
                sink.sendall(chunk)
            if verdict is not None:
                break
    _end(source)
    _end(sink)


def _chunks(source: socket.socket) -> Iterator[bytes]:
    while chunk := source.recv(_CHUNK):
        yield chunk


def _end(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    with contextlib.suppress(OSError):
        one.close()
