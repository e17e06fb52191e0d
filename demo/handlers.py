"""
What the demonstration's workers do: split a PDF, extract its pages, join the text.
"""

import io
import os
import time

from pypdf import PdfReader, PdfWriter

from jobstore import Completed, Context, Handlers, JobFailed
from jobstore.worker import Answer

__all__ = ["handlers", "text_of"]

handlers = Handlers()

# Real pages take a while to read; these few would be done before one can watch.
_PACE_SECONDS = float(os.environ.get("DEMO_PACE", "0.25"))


@handlers.on("document")
def document(context: Context) -> Answer:
    """
    First time: one child for each page. Second time: join what they found.
    """
    if context.job.is_resumed:
        if context.job.children_failed:
            raise JobFailed("PAGES_MISSING", "not all pages could be read", final=True)
        pages = sorted(context.children(), key=lambda child: child.pages)
        return Completed(b"\f".join(child.result or b"" for child in pages))
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
    time.sleep(_PACE_SECONDS)
    return text_of(context.payload().data).encode()


def text_of(pdf: bytes) -> str:
    """
    Extract the text of a whole PDF, pages parted by form feeds.
    """
    reader = PdfReader(io.BytesIO(pdf))
    return "\f".join(one.extract_text() for one in reader.pages)


def _single_page(reader: PdfReader, number: int) -> bytes:
    writer = PdfWriter()
    writer.add_page(reader.pages[number])
    buffer = io.BytesIO()
    writer.write(buffer)
    return buffer.getvalue()
