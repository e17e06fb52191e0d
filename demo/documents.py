"""
The document that is demonstrated on: reading it, or saying what is wrong with it.
"""

import io
import logging
from dataclasses import dataclass, field
from pathlib import Path

from pypdf import PageObject, PdfReader

__all__ = ["SHIPPED", "Document", "Unreadable", "read_document"]

SHIPPED = Path(__file__).with_name("document.pdf")


class Unreadable(Exception):
    """
    The file is no document that can be demonstrated on; the message says why.
    """


@dataclass(frozen=True, slots=True)
class Document:
    """
    A PDF, and the text of each of its pages as read in one go.
    """

    path: Path
    pdf: bytes = field(repr=False)
    texts: tuple[str, ...] = field(repr=False)

    @property
    def pages(self) -> int:
        return len(self.texts)


def read_document(path: Path) -> Document:
    """
    Read the whole document, so that what is wrong with it is told before the start.

    Raises:
        Unreadable: It is missing, encrypted, empty, or not a PDF.
    """
    try:
        pdf = path.read_bytes()
    except OSError as error:
        raise Unreadable(f"cannot read {path}: {error.strerror}") from None
    # It grumbles about much that it can read all the same.
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    try:
        reader = PdfReader(io.BytesIO(pdf))
        is_encrypted = reader.is_encrypted
        texts = () if is_encrypted else tuple(map(_text, reader.pages))
    except Exception as error:  # noqa: BLE001 - a broken PDF raises anything at all
        reason = str(error).strip() or type(error).__name__
        raise Unreadable(f"{path} is not a PDF that can be read: {reason}") from None
    if is_encrypted:
        raise Unreadable(f"{path} is encrypted; give a document without a password")
    if not texts:
        raise Unreadable(f"{path} has no pages")
    return Document(path, pdf, texts)


def _text(page: PageObject) -> str:
    return page.extract_text()
