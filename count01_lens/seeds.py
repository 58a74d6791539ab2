"""Seeds as people write them on a command line."""


def parse_seeds(text: str, name: str = "seeds") -> list[int]:
    """Read '3', '0-9', '1,5,7' or a mixture such as '0-3,8': seeds, or heads.

    >>> parse_seeds("0-3,8")
    [0, 1, 2, 3, 8]
    """
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ValueError(
                f"{name}: expected numbers such as '0', '0-9' or '1,5,7', got {text!r}"
            )
        low, high = int(first), int(last or first)
        if high < low or high - low >= 100_000:
            raise ValueError(f"{name}: expected a range from low to high, got {part.strip()!r}")
        seeds.extend(range(low, high + 1))
    return seeds
