"""What is wrong in any text for people: "1 heads", "2 head", floats as programs write them."""

import re

NOUNS = (
    "head|group|pair|prompt|model|epoch|value|sentence|token|tie|job|answer|choice|question|layer|"
    "character|moment|size|run|seed|sample"
)
ONE_OF = r"\b[01] of \d+(?: heads)?"
SEVERAL_OF = r"\b(?:[2-9]|\d\d+) of \d+(?: heads)?"
EVERYWHERE = {
    "one of a plural": rf"(?<![\d.,−-])1 (?:[a-z]+ )?(?:{NOUNS})s\b",
    "several of a singular": rf"\b(?:0|[2-9]|\d\d+) (?:{NOUNS})\b",
    "one has a verb of many": rf"{ONE_OF} (?:are|work|have|reach|need)\b",
    "many have a verb of one": rf"{SEVERAL_OF} (?:is|works|has|reaches|needs)\b",
    "one head by a verb of many": r"^[Hh]ead \S+ (?:are|work|have|reach|need)\b",
    "an exponent": r"\de[+-]?\d",
    "a long fraction": r"\d\.\d{7}",
    "what is no number": r"\b(?:nan|NaN|None|inf)\b",
    "a percent sign without space": r"\d%",
    "an empty bracket": r"\(\s*\)|\[\s*\]",
    "two stops": r"(?<!\.)\.\.(?!\.)|,,|;;",
}  # fmt: skip
IN_PROSE = {
    "a minus that is a hyphen": r"(?<![\w.])-\d",
    "a stop after a space": r" [,;.](?!\w)",
    "two spaces": r"\S  \S",
    "a sentence without an end": r"[a-z)]\s*$",
    "a sentence without a beginning": r"(?:^|\. )[a-z]",
}


def assert_well_written(text, *, is_prose=True):
    """Find nothing wrong in any line of a text; tables may have hyphens and spaces."""
    for name, pattern in (EVERYWHERE | IN_PROSE if is_prose else EVERYWHERE).items():
        for line in text.splitlines():
            found = re.search(pattern, line)
            assert found is None, f"{name}: {found.group()!r} in {line!r}"
