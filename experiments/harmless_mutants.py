"""Mutants that no test can kill: what they change has no effect that anyone could see.

A survivor is explained if the line that it became is listed here under a reason; there must be no
other.
"""

from collections.abc import Mapping

HARMLESS: dict[str, list[str]] = {}


def reason_of(survivor: Mapping[str, str]) -> str | None:
    """Say why a survivor is harmless, or None."""
    return next((why for why, lines in HARMLESS.items() if survivor["became"] in lines), None)
