"""Numbers and lists as people read them: the only place that formats them."""

import json
import math
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Any

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def ranges(numbers: Iterable[int]) -> str:
    """Write whole numbers as `parse_numbers` reads them.

    >>> ranges([100, 101, 102, 7])
    '100-102, 7'
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def listed(values: Sequence[int]) -> str:
    """List values, of many only the first and the last."""
    texts = [str(value) for value in values]
    return ", ".join(texts if len(texts) <= 8 else [*texts[:4], "...", *texts[-3:]])


def plural(count: int, noun: str) -> str:
    """Write "1 head" or "4 heads"."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def in_words(items: Iterable[object]) -> str:
    """List items as in a sentence.

    >>> in_words([1, 4, 7]), in_words(["one", "other"])
    ('1, 4 and 7', 'one and other')
    """
    *first, last = map(str, items)
    return f"{', '.join(first)} and {last}" if first else last


def number(value: float | None, digits: int = 4) -> str:
    """Write a number with as many digits as readers want to see, and never as "1e-05".

    >>> [number(value) for value in (1500, -1 / 3, 58341.2, 1.31e-5, float("inf"), None)]
    ['1,500', '−0.3333', '58,340', '1.31·10⁻⁵', '∞', '–']
    """
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if float(value).is_integer() and abs(value) < 1e15:
        return _typeset(f"{int(value):,}")
    text = f"{value:.{digits}g}"
    return _typeset(f"{Decimal(text):,f}" if 1e3 <= abs(value) < 1e15 else text)


def four_digits(value: float) -> str:
    """Write a number of a column: always four digits, also where they are zeros.

    >>> [four_digits(value) for value in (1.0, 0.00025454, 4677.2, 1e-27, float("inf"), 0)]
    ['1.000', '0.0002545', '4,677', '1.000·10^−27', '∞', '0']
    """
    if not math.isfinite(value) or value == 0 or 1e3 <= abs(value) < 1e15:
        return number(value)
    if not 1e-6 <= abs(value) < 1e15:
        digits, _, power = f"{value:.3e}".partition("e")
        return _typeset(f"{digits}·10^{int(power)}")
    return _typeset(f"{Decimal(f'{value:#.4g}'):f}".rstrip("."))


def share(value: float | None) -> str:
    """Write a share to four decimals, so that only an exact 1 reads 1.0000.

    >>> [share(value) for value in (1, 0.99999, 2 / 3, float("nan"))]
    ['1.0000', '0.9999', '0.6667', '–']
    """
    if value is None or math.isnan(value):
        return "–"
    text = f"{value:.4f}"
    return _typeset("0.9999" if text == "1.0000" and value < 1 else text)


def short(value: float, digits: int = 4) -> str:
    """Write a number in plain characters, for terminals, Markdown and files."""
    return f"{value:.{digits}g}"


def rounded(values: Any) -> Any:
    """Round the numbers in nested lists to the digits that `short` writes."""
    return [rounded(part) for part in values] if isinstance(values, list) else float(short(values))


def signed(value: float, form: str = ".3g") -> str:
    """Write a number always with its sign.

    >>> signed(-0.5), signed(2, ".2f")
    ('−0.5', '+2.00')
    """
    return _typeset(f"{value:+{form}}")


def written_signed(value: float, form: str = ".3f") -> str:
    """Write a number with its sign; – if there is none, and no sign before zeros.

    >>> [written_signed(value) for value in (-0.02, 0.0002, float("nan"))]
    ['−0.020', '0.000', '–']
    """
    if math.isnan(value):
        return "–"
    return f"{0:{form}}" if float(f"{value:{form}}") == 0 else signed(value, form)


def percent(value: float | None, decimals: int = 1) -> str:
    """Write a fraction in percent, with as many decimals as keep 0 and 100 for none and all.

    >>> percent(0.5), percent(0.99996), percent(1)
    ('50.0\\xa0%', '99.996\\xa0%', '100\\xa0%')
    """
    if value is None or math.isnan(value):
        return "–"
    if value in (0, 1):
        decimals = 0
    else:
        while decimals < 6 and float(f"{100 * value:.{decimals}f}") in (0, 100):
            decimals += 1
    return _typeset(f"{100 * value:.{decimals}f}") + "\u00a0%"


def rounded_percent(value: float, decimals: int = 0) -> str:
    """Write a fraction in percent, rounded: for sentences about many runs."""
    return f"{100 * value:.{decimals}f} %"


def percent_in_column(value: float) -> str:
    """Write a fraction to four decimals, ten characters wide, so that only an exact 1 reads 100 %.

    >>> [percent_in_column(value) for value in (0.5, 1 - 1e-9, float("nan"))]
    [' 50.0000 %', '99.9999 %+', '         –']
    """
    if math.isnan(value):
        return f"{'–':>10}"
    text = rounded_percent(value, 4)
    return "99.9999 %+" if text == "100.0000 %" and value < 1 else f"{text:>10}"


def anything(value: Any, digits: int = 4) -> str:
    """Write a value of JSON: words as they are, yes and no, numbers, the rest as JSON."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or isinstance(value, int | float):
        return number(value, digits)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def rewritten(cell: str, write: Callable[[float], str]) -> str:
    """Write the number in a cell of a CSV file in another way; anything else stays as it is."""
    try:
        return write(float(cell))
    except ValueError:
        return cell


def sum_of_terms(terms: Iterable[tuple[float, str]]) -> str:
    """Write a weighted sum without the terms that round to zero.

    >>> sum_of_terms([(1, "n1"), (-1.0034, "n0"), (0.0001, "n2"), (-0.41, "")])
    'n1 − 1.003·n0 − 0.41'
    >>> sum_of_terms([(1, "n1"), (-58341.2, "n0")])
    'n1 − 58,300·n0'
    """
    written = ""
    for value, name in terms:
        number = _typeset(_digits(abs(value)))
        if number:
            factor = "" if number == "1" and name else number + "·" * bool(name)
            sign = (" + " if value > 0 else " − ") if written else "−" * bool(value < 0)
            written += sign + factor + name
    return written or "0"


def as_written(value: float) -> float:
    """The number that a reader of `sum_of_terms` sees.

    >>> [as_written(value) for value in (-1.0034, 0.0001, 1234.5)]
    [-1.003, 0.0, 1230.0]
    """
    return math.copysign(float(_digits(abs(value)) or 0), value)


def _digits(size: float) -> str:
    """Three decimals, of large numbers three digits; nothing of what rounds to zero."""
    if size < 5e-4:
        return ""
    return f"{size:.3f}".rstrip("0").rstrip(".") if size < 100 else f"{size:.3g}"


def as_code(value: Any) -> str:
    """Write a value as Python reads it; infinity has no name of its own there."""
    return 'float("inf")' if value == math.inf else repr(value)


def duration(seconds: float | None) -> str:
    """Write a time in words."""
    if seconds is None:
        return "an unknown time"
    if seconds < 120:
        return f"{seconds:.0f} seconds"
    minutes = round(seconds / 60)
    return f"{minutes} minutes" if minutes < 120 else f"{minutes / 60:.1f} hours"


def file_size(size: int) -> str:
    """Write a number of bytes in words."""
    if size >= 1_000_000:
        return f"{size / 1_000_000:.1f} MB"
    return f"{size / 1_000:.1f} kB" if size >= 1_000 else f"{size} bytes"


def _typeset(text: str) -> str:
    """Write minus signs, and powers of ten as people do."""
    digits, exponent, power = text.partition("e")
    if exponent and 0 <= int(power) < 15:
        digits = f"{float(text):{'+' * text.startswith('+')},.0f}"
    elif exponent:
        digits += "·10" + str(int(power)).translate(_SUPERSCRIPTS)
    return digits.replace("-", "−")
