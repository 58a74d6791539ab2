"""Numbers and lists of values, as people write them on a command line."""

import json
from typing import Any

MOST = 100_000


def parse_numbers(text: str, name: str) -> list[int]:
    """Read '3', '0-9', '1,5,7' or a mixture such as '0-3,8': seeds, heads or sizes.

    >>> parse_numbers("0-3,8", "seeds")
    [0, 1, 2, 3, 8]
    """
    numbers: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ValueError(
                f"{name}: expected numbers such as '0', '0-9' or '1,5,7', got {text!r}"
            )
        low, high = int(first), int(last or first)
        if high < low:
            raise ValueError(f"{name}: expected a range from low to high, got {part.strip()!r}")
        if len(numbers) + high - low >= MOST:
            raise ValueError(f"{name}: expected at most {MOST:,} numbers, got {text!r}")
        numbers.extend(range(low, high + 1))
    return numbers


def parse_ratio(text: str | None, name: str) -> float | None:
    """Read a ratio such as '0.5', '0', 'inf' or '∞'; None stays None."""
    if text is None:
        return None
    try:
        return float(text.replace("∞", "inf"))
    except ValueError:
        message = f"{name}: expected a number from 0 to infinity ('inf'), got {text!r}"
        raise ValueError(message) from None


def parse_axis(text: str) -> tuple[str, list[Any]]:
    """Read 'name=value,value'; values are numbers, true, false or words.

    >>> parse_axis("layer-norm=false,true")
    ('layer_norm', [False, True])
    """
    name, equals, values = text.partition("=")
    if not (name and equals and values):
        raise ValueError(f"vary: expected such as 'learning_rate=0.001,0.005', got {text!r}")
    return name.strip().replace("-", "_"), [_value(part.strip()) for part in values.split(",")]


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
