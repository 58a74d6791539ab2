"""Parts of a page that are written by a program, each between two marks; the rest is people's."""

from collections.abc import Mapping
from pathlib import Path

from count01_lens.common.storage import write_atomically


def generated_part(content: str, name: str = "") -> str:
    """Put the marks around a text; a page with several parts has names for them."""
    begin, end = _marks(name)
    return f"{begin}\n{content}\n{end}"


def write_generated(page: Path, content: str) -> None:
    """Replace what stands between the marks of a page."""
    write_parts(page, {"": content})


def write_parts(page: Path, parts: Mapping[str, str]) -> None:
    """Replace what stands between the marks of each part: all of them, or none."""
    text = page.read_text("utf-8")
    for name, content in parts.items():
        begin, end = _marks(name)
        before, _, rest = text.partition(begin)
        _, found, after = rest.partition(end)
        if not found:
            raise ValueError(f"{page}: expected the lines {begin!r} and {end!r}, got neither")
        text = before + generated_part(content, name) + after
    write_atomically(page, text.encode())


def _marks(name: str) -> tuple[str, str]:
    named = f"{name} " if name else ""
    return f"<!-- generated: {named}begin -->", f"<!-- generated: {named}end -->"
