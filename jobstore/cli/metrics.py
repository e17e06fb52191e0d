"""
Metrics of the queues, for Prometheus.
"""

import contextlib
import signal
import sys
import threading
from types import FrameType

import click

from jobstore.cli import output
from jobstore.cli.options import Target, target
from jobstore.errors import InvalidInput

__all__ = ["metrics"]

_NO_EXTRA = "metrics need more packages: pip install 'jobstore[metrics]'"


@click.command()
@target
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default="127.0.0.1:9187",
    show_default=True,
    help="Where to serve them, to whoever can reach it.",
)
@click.option("--once", is_flag=True, help="Print them once instead.")
def metrics(where: Target, *, listen: str, once: bool) -> None:
    """
    Serve how the queues are to Prometheus, until Ctrl-C.
    """
    try:
        import prometheus_client  # noqa: PLC0415 - an optional extra

        from jobstore.observe.metrics import QueueCollector  # noqa: PLC0415 - the same
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("jobstore"):
            raise
        raise click.ClickException(_NO_EXTRA) from None
    host, port = _address(listen)
    collector = QueueCollector(
        where.dsn, schema=where.schema, through_pooler=where.through_pooler
    )
    with contextlib.closing(collector):
        if once:
            # Errors get their exit code here; a scrape says jobstore_up 0.
            collector.read()
        registry = prometheus_client.CollectorRegistry()
        registry.register(collector)
        if once:
            # As bytes: it is UTF-8, whatever the terminal is.
            click.echo(prometheus_client.generate_latest(registry), nl=False)
            return
        server, thread = prometheus_client.start_http_server(
            port, addr=host.removeprefix("[").removesuffix("]"), registry=registry
        )
        try:
            _serve_until_told(f"http://{host}:{server.server_port}/metrics")
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


def _serve_until_told(url: str) -> None:
    told = threading.Event()

    def stop(_number: int, _frame: FrameType | None) -> None:
        told.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    output.print_line(url)
    sys.stdout.flush()
    told.wait()


def _address(listen: str) -> tuple[str, int]:
    host, colon, port = listen.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit():
        raise InvalidInput("listen", listen, "must be like 127.0.0.1:9187")
    if int(port) > 65_535:
        raise InvalidInput("listen", listen, "has no such port")
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise InvalidInput("listen", listen, "an IPv6 address stands in brackets")
    return host, int(port)
