"""The Count01 language: `[BOS]{0,1,2}*={4,5}[EOS]`, '4' iff there are more 1s than 0s.

Definition 3.1 of the paper. Choosing between '4' and '5' is the *semantic* task (counting),
writing '[EOS]' after it the *syntactic* one. Ties are answered by '5'.
"""

import operator
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Literal

Answer = Literal["4", "5"]


class Token(IntEnum):
    """The eight tokens, numbered in the order of the paper's appendix A."""

    BOS, ZERO, ONE, TWO, EQUALS, FOUR, FIVE, EOS = range(8)

    @property
    def text(self) -> str:
        """How the token is written in a sentence."""
        return TOKENS[self]


TOKENS: tuple[str, ...] = ("[BOS]", "0", "1", "2", "=", "4", "5", "[EOS]")
COUNTED = (Token.ZERO, Token.ONE, Token.TWO)
_BY_TEXT = {text: Token(index) for index, text in enumerate(TOKENS)}
_TOKEN = re.compile("|".join(map(re.escape, TOKENS)))
_SENTENCE = r"(?:\[BOS\])?([012]*)(?:(=)(?:([45])(\[EOS\])?)?)?"


class SentenceError(ValueError):
    """A text is not a sentence of the language."""


class MalformedSentenceError(SentenceError):
    """A text does not fit the grammar; `position` is the first character that does not."""

    def __init__(self, text: str, position: int, expected: str):
        self.text, self.position, self.expected = text, position, expected
        token = _TOKEN.match(text, position)
        found = repr(token[0] if token else text[position]) if position < len(text) else "the end"
        super().__init__(
            f"malformed sentence at position {position}: expected {expected}, got {found}\n"
            + _pointer(text, position)
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.text, self.position, self.expected)


class WrongAnswerError(SentenceError):
    """A text fits the grammar, but its answer does not fit its counts."""

    def __init__(self, sentence: "Sentence"):
        self.sentence = sentence
        n0, n1, _ = sentence.counts
        comparison = "more 1s than 0s" if n1 > n0 else "no more 1s than 0s"
        super().__init__(
            f"well-formed sentence with the wrong answer: expected "
            f"'{right_answer(n0, n1)}' ({n1} ones, {n0} zeros: {comparison}), "
            f"got '{sentence.answer}' in {_shorten(str(sentence))!r}"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.sentence,)


@dataclass(frozen=True)
class Sentence:
    """A well-formed text, at least up to its '='; the answer may be missing, or wrong."""

    body: tuple[Token, ...]  # between '[BOS]' and '='
    answer: Answer | None = None
    ended: bool = False  # whether '[EOS]' was written

    def __post_init__(self) -> None:
        if not all(token in COUNTED for token in self.body) or isinstance(self.body, str):
            raise ValueError(f"body: expected tokens '0', '1' and '2', got {self.body!r}")
        if self.answer not in ("4", "5", None) or (self.ended and self.answer is None):
            expected = "'4', '5' or, where '[EOS]' is not written, None"
            raise ValueError(f"answer: expected {expected}; got {self.answer!r}")

    @property
    def counts(self) -> tuple[int, int, int]:
        """How many '0', '1' and '2' tokens there are."""
        n0, n1, n2 = (self.body.count(token) for token in COUNTED)
        return n0, n1, n2

    @property
    def right_answer(self) -> Answer:
        """The answer that the counts call for."""
        return right_answer(*self.counts[:2])

    @property
    def tokens(self) -> list[Token]:
        """The sentence as tokens, '[BOS]' first, as far as it was written."""
        answer = [] if self.answer is None else [_BY_TEXT[self.answer]]
        return [Token.BOS, *self.body, Token.EQUALS, *answer, *[Token.EOS] * self.ended]

    def __str__(self) -> str:
        return "".join(token.text for token in self.tokens[1:] if token is not Token.EOS)


def right_answer(n0: int, n1: int) -> Answer:
    """Return '4' if there are more 1s than 0s, else '5'.

    Example:
        >>> right_answer(3, 5), right_answer(4, 4)  # ties are '5'
        ('4', '5')
    """
    for name, count in (("n0", n0), ("n1", n1)):
        if isinstance(count, bool) or not hasattr(count, "__index__") or count < 0:
            raise ValueError(f"{name}: expected a whole number of at least 0, got {count!r}")
    return "4" if n1 > n0 else "5"


def parse(text: str) -> Sentence:
    """Read a sentence such as `0110=5`, with or without '[BOS]', '[EOS]' and the answer.

    The answer may be wrong; `validate` checks it.

    Raises:
        MalformedSentenceError: with the text, the position and what was expected there.

    Example:
        >>> sentence = cl.parse("0112=4")
        >>> sentence.counts, sentence.answer
        ((1, 2, 1), '4')
    """
    if not isinstance(text, str):
        raise TypeError(f"expected a sentence as a str such as '0110=5', got {text!r}")
    read: Any = re.match(_SENTENCE, text)  # nothing at all would do, so it is never None
    body, equals, answer, end = read.groups()
    if equals is None:
        raise MalformedSentenceError(text, read.end(), "'0', '1', '2' or '='")
    if read.end() < len(text):
        before_end = "'4', '5' or " if answer is None else "'[EOS]' or " if end is None else ""
        raise MalformedSentenceError(text, read.end(), f"{before_end}the end")
    return Sentence(tuple(_BY_TEXT[digit] for digit in body), answer, end is not None)


def validate(text: str) -> Sentence:
    """Read a sentence that must have an answer, and the right one.

    Raises:
        MalformedSentenceError: the text does not fit the grammar, or ends with '='.
        WrongAnswerError: the text fits, but its answer does not fit its counts.
    """
    sentence = parse(text)
    if sentence.answer is None:
        raise MalformedSentenceError(text, len(text), "'4' or '5'")
    if sentence.answer != sentence.right_answer:
        raise WrongAnswerError(sentence)
    return sentence


def encode(text: str) -> list[int]:
    """Turn a sentence into token ids; '[BOS]' is put first whether it is written or not.

    >>> encode("01=5")
    [0, 1, 2, 4, 6]
    """
    return [int(token) for token in parse(text).tokens]


def decode(tokens: Iterable[int]) -> str:
    """Turn token ids into text, special tokens included.

    >>> decode([0, 1, 2, 4, 6, 7])
    '[BOS]01=5[EOS]'
    """
    if isinstance(tokens, str) or not isinstance(tokens, Iterable):
        raise TypeError(f"tokens: expected token ids such as [0, 1, 4], got {tokens!r}")
    ids = []
    for position, token in enumerate(tokens):
        try:
            ids.append(operator.index(token))
        except TypeError as error:
            message = f"token {token!r} at position {position}: expected a whole number"
            raise TypeError(message) from error
        if not 0 <= ids[-1] < len(TOKENS):
            where = f"token {ids[-1]} at position {position}"
            last = len(TOKENS) - 1
            raise ValueError(f"{where} is not in the vocabulary: expected 0 to {last}")
    return "".join(TOKENS[token] for token in ids)


def split_into_tokens(text: str, tokens: Sequence[str] = TOKENS) -> list[int]:
    """Cut any text over a vocabulary into token ids; raise at a character that is in none."""
    found: list[int] = []
    position, any_token = 0, re.compile("|".join(map(re.escape, tokens)))
    while token := any_token.match(text, position):
        found.append(tokens.index(token[0]))
        position = token.end()
    if position < len(text):
        raise MalformedSentenceError(text, position, f"one of {' '.join(tokens)}")
    return found


def _pointer(text: str, position: int, width: int = 60) -> str:
    """Show the neighbourhood of a position, with a caret under it."""
    start = max(0, position - width // 2)
    # Tabs and newlines would break the line or move the caret.
    piece = "".join(c if c.isprintable() else "·" for c in text[start : start + width])
    before = "…" if start > 0 else ""
    after = "…" if start + width < len(text) else ""
    caret = " " * (len(before) + position - start) + "^"
    return f"    {before}{piece}{after}\n    {caret}"


def _shorten(text: str, width: int = 60) -> str:
    return text if len(text) <= width else f"{text[: width // 2]}…{text[-width // 2 :]}"
