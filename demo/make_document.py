"""
Make document.pdf of this project's own documentation: ``python -m demo.make_document``.

Needs fpdf2; run by hand when the document should change.
"""

import re
from datetime import UTC, datetime
from pathlib import Path

from fpdf import FPDF

_HERE = Path(__file__).parent
_DOCS = _HERE.parent / "docs"
_CHAPTERS = (
    "guarantees.md",
    "architecture.md",
    "decisions/0001-plain-sql-one-core.md",
    "decisions/0002-embedded-postgres.md",
    "decisions/0003-children-are-counted.md",
    "decisions/0004-keys-have-their-own-table.md",
)


def main() -> None:
    pdf = FPDF(format="A5")
    pdf.set_title("jobstore: a handbook")
    pdf.set_creation_date(datetime(2026, 1, 1, tzinfo=UTC))
    pdf.set_auto_page_break(auto=True, margin=18)
    for chapter in _CHAPTERS:
        pdf.add_page()
        for block in _plain((_DOCS / chapter).read_text()).split("\n\n"):
            heading = block.startswith("#")
            pdf.set_font("Times", "B" if heading else "", 15 if heading else 11)
            text = block.lstrip("# ").replace("\n", " " if heading else "\n")
            pdf.multi_cell(
                0, 7 if heading else 5.2, text, new_x="LMARGIN", new_y="NEXT"
            )
            pdf.ln(2)
    pdf.output(str(_HERE / "document.pdf"))


def _plain(markdown: str) -> str:
    text = re.sub(r"```.*?```", "", markdown, flags=re.DOTALL)
    text = re.sub(r"[`*|]", "", text)
    return text.encode("latin-1", "replace").decode("latin-1")


if __name__ == "__main__":
    main()
