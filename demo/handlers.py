"""
What the demonstration's workers do: split a PDF, extract its pages, join the text.
"""

import io
import os
import time

from pypdf import PdfReader, PdfWriter

from jobstore import Completed, Context, Handlers, JobFailed
from jobstore.worker import Answer

__all__ = ["PACE", "handlers", "joined"]

handlers = Handlers()

PACE = "DEMO_PACE_SECONDS"
"""The variable with how long a page takes at least: these would be done too soon to
watch, and to kill anybody at it."""


@handlers.on("document")
def document(context: Context) -> Answer:
    """
    First time: one child for each page. Second time: join what they found.
    """
    if context.job.is_resumed:
        if context.job.children_failed:
            raise JobFailed("PAGES_MISSING", "not all pages could be read", final=True)
        pages = sorted(context.children(), key=lambda child: child.pages)
        return Completed(joined([page.result or b"" for page in pages]))
    reader = PdfReader(io.BytesIO(context.payload().data))
    return context.fan_out(
        [
            context.job.child(
                kind="page",
                payload=_single_page(reader, number),
                content_type="application/pdf",
                pages=[number],
            )
            for number in range(len(reader.pages))
        ]
    )


@handlers.on("page")
def page(context: Context) -> Answer:
    """
    Extract the text of one page.
    """
    time.sleep(float(os.environ.get(PACE, "0")))
    (only,) = PdfReader(io.BytesIO(context.payload().data)).pages
    # Odd fonts yield odd characters, halves of surrogate pairs among them.
    return only.extract_text().encode(errors="surrogatepass")


def joined(pages: list[bytes]) -> bytes:
    """
    Join the pages' texts, with a form feed between two.
    """
    return b"\f".join(pages)


def _single_page(reader: PdfReader, number: int) -> bytes:
    writer = PdfWriter()
    writer.add_page(reader.pages[number])
    buffer = io.BytesIO()
    writer.write(buffer)
    return buffer.getvalue()
