"""The part of a page that is written by a program, between two marks; the rest is people's."""

from pathlib import Path

from count01_lens.common.storage import write_atomically

BEGIN, END = "<!-- generated: begin -->", "<!-- generated: end -->"


def generated_part(content: str) -> str:
    """Put the marks around a text."""
    return f"{BEGIN}\n{content}\n{END}"


def write_generated(page: Path, content: str) -> None:
    """Replace what stands between the marks of a page."""
    before, _, rest = page.read_text("utf-8").partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise ValueError(f"{page}: expected the lines {BEGIN!r} and {END!r}, got neither")
    write_atomically(page, (before + generated_part(content) + after).encode())
