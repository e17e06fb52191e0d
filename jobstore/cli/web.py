"""
The page to look at.
"""

import os
import signal
import sys
from pathlib import Path
from types import FrameType

import click

from jobstore.cli import output
from jobstore.cli.options import Target, target
from jobstore.errors import InvalidInput

__all__ = ["web"]

_NO_EXTRA = "the page needs more packages: pip install 'jobstore[web]'"


@click.command()
@target
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default="127.0.0.1:8080",
    show_default=True,
    help="Where to serve it; any but a local address needs a token.",
)
@click.option("--operate", is_flag=True, help="Also offer to requeue and cancel jobs.")
@click.option(
    "--token-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file with the token that visitors must know. [JOBSTORE_WEB_TOKEN]",
)
@click.option(
    "--allow-host",
    "allowed",
    multiple=True,
    metavar="NAME",
    help="Another name that it is reached by; may be given several times.",
)
def web(
    where: Target,
    *,
    listen: str,
    operate: bool,
    token_file: Path | None,
    allowed: tuple[str, ...],
) -> None:
    """
    Serve a page to look at queues and jobs, until Ctrl-C.

    It changes nothing without --operate. On this machine it is open to everybody,
    unless there is a token; that can stand in JOBSTORE_WEB_TOKEN.
    """
    try:
        from jobstore.web import serve  # noqa: PLC0415 - an optional extra
        from jobstore.web.app import create_app  # noqa: PLC0415 - the same
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("jobstore"):
            raise
        raise click.ClickException(_NO_EXTRA) from None
    host, addresses = serve.resolve(listen)
    token = _token(token_file)
    if token is None and not serve.is_local(addresses):
        reason = "others could open it: give --token-file or set JOBSTORE_WEB_TOKEN"
        raise InvalidInput("listen", listen, reason)
    app = create_app(
        where.dsn,
        schema=where.schema,
        operate=operate,
        token=token,
        hosts=serve.hosts_for(host, allowed),
        through_pooler=where.through_pooler,
    )
    with serve.listening(addresses) as listener:
        port = listener.getsockname()[1]

        def told() -> None:
            output.print_line(f"http://{host}:{port}/")
            sys.stdout.flush()

        for number in (signal.SIGTERM, signal.SIGINT):
            # What the server does not handle itself; either is a good end.
            signal.signal(number, _ignored)
        serve.serve(app, listener, told=told)


def _ignored(_number: int, _frame: FrameType | None) -> None:
    return


def _token(file: Path | None) -> str | None:
    """
    Return the token of the file, else of the environment; an empty one is none.
    """
    if file is not None:
        # Not None, however empty: such a file must not open the page.
        return file.read_bytes().decode(errors="replace").strip()
    return os.environ.get("JOBSTORE_WEB_TOKEN") or None
