"""Cells in tables of claims: our number, its interval, and the rule it is judged by."""

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup, escape

from count01_lens.common.text import number, percent
from count01_lens.views.document import element


def our_value(claim: Mapping[str, Any]) -> str:
    """Our number; one close to a limit of its rule is written so that it shows on which side."""
    value = claim["value"]
    limits = [end for key in ("reproduced", "partly") for end in claim[key] if end is not None]
    for more in range(8):
        text = _written(value, _unit(claim), more)
        if not any(end != value and _written(end, _unit(claim), more) == text for end in limits):
            break
    return text


def _written(value: float | None, unit: str, more_digits: int) -> str:
    if unit == "share":
        return percent(value, 1 + more_digits)
    text = number(value, 4 + more_digits)
    return text if unit == "number" or value is None else f"{text} {unit}"


def _unit(claim: Mapping[str, Any]) -> str:
    """What a number is; where claims do not tell, a measured "share of …" is one."""
    told = claim.get("unit")
    if isinstance(told, str):
        return told
    return "share" if str(claim.get("measure", "")).startswith("share ") else "number"


def contrasted(claim: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The claim with its number and verdict under the contrasting recipe, if there is one."""
    contrast = claim.get("contrast")
    return None if contrast is None else {**claim, **contrast}


def spread_words(claim: Mapping[str, Any]) -> str:
    """The interval around our number, and what it rests on; nothing where it is a single one."""
    n, ends = claim.get("n"), (claim.get("low"), claim.get("high"))
    told = [] if None in ends else [_interval(claim, ends)]
    told += [] if n is None else [f"n\u00a0=\u00a0{n}"]
    return f"({', '.join(told)})" if told else ""


def spread(claim: Mapping[str, Any]) -> Markup:
    """The interval around our number on a line of its own."""
    told = spread_words(claim)
    return _small_line(told) if told else Markup()


def measured_as(claim: Mapping[str, Any]) -> Markup:
    """How a claim was measured, and what else there is to know."""
    told = [str(claim[key]) for key in ("measure", "note") if claim.get(key)]
    return Markup().join(_small_line(text) for text in told if text != claim["statement"])


def rule(claim: Mapping[str, Any]) -> Markup:
    """What counts as reproduced, and as partly."""
    partly = _small_line(f"partly: {_interval(claim, claim['partly'])}")
    return escape(rule_words(claim)) + partly


def rule_words(claim: Mapping[str, Any]) -> str:
    """What counts as reproduced."""
    return _interval(claim, claim["reproduced"])


def _small_line(text: str) -> Markup:
    return Markup("<br>") + element("span", text, class_="small")


def _interval(claim: Mapping[str, Any], ends: Sequence[float | None]) -> str:
    unit = _unit(claim)
    factor, sign = (
        (100, "\u00a0%") if unit == "share" else (1, "" if unit == "number" else f" {unit}")
    )
    low, high = (None if end is None else number(factor * tidy(end)) for end in ends)
    if low is None:
        return "anything" if high is None else f"at most {high}{sign}"
    if high is None:
        return f"at least {low}{sign}"
    return f"{low}{sign}" if low == high else f"{low} to {high}{sign}"


def tidy(end: float) -> float:
    """The end of an interval; one at zero may be off by rounding."""
    return end if abs(end) > 1e-12 else 0.0
