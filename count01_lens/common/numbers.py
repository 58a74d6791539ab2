"""Whole numbers as people write them on a command line."""

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
