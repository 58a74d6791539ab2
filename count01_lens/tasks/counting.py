"""Languages of counting: `[BOS]`, counted symbols in any order, '=', an answer, '[EOS]'.

Count01 is one of them. A model over such a language has its tokens in this order, so that '[EOS]'
is always the last one and the answers stand side by side.
"""

import keyword
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from count01_lens.common.validation import check_choice
from count01_lens.tasks.rules import Rule

At = Literal["=", "answer"]
BOS, EQUALS, EOS = "[BOS]", "=", "[EOS]"
_MOST_TOKENS = 200


@dataclass(frozen=True)
class Place:
    """A query position: after '=' comes the answer, after the answer '[EOS]'.

    Attributes:
        queries: the tokens that may stand there and ask. In the order of the vocabulary they are
            neighbours, so that a table's rows for them are a slice, and no copy.
        from_end: how many tokens from the end of a whole sentence it is.
        column: its position in the compact form, such as `[BOS] 0 1 2 = a`.
        language: whose sentences have it.
    """

    name: At
    queries: tuple[int, ...]
    from_end: int
    column: int
    language: "CountingLanguage"

    @property
    def rows(self) -> slice:
        """The queries as rows of a table over the vocabulary."""
        return slice(self.queries[0], self.queries[-1] + 1)


@dataclass(frozen=True)
class CountingLanguage:
    """Symbols that are counted, answers, and the rule from counts to the right one.

    Attributes:
        symbols: a string of single characters, or short strings.
        answers: likewise, at least two.
        rule: see `Rule`.
    """

    symbols: tuple[str, ...]
    answers: tuple[str, ...]
    rule: Rule

    @classmethod
    def of(cls, symbols: Any, answers: Any, rule: Any) -> "CountingLanguage":
        """Check and make one."""
        symbols = _texts("symbols", symbols, at_least=1)
        answers = _texts("answers", answers, at_least=2)
        for symbol in symbols:
            name = f"n{symbol}"
            if not (name.isascii() and name.isidentifier()) or keyword.iskeyword(name):
                raise ValueError(
                    "symbols: expected letters, digits or underscores, so that a rule can name "
                    f"their counts, got {symbol!r}"
                )
        _check_apart([BOS, *symbols, EQUALS, *answers, EOS])
        return cls(symbols, answers, Rule(rule, symbols, len(answers)))

    @cached_property
    def tokens(self) -> tuple[str, ...]:
        """How each token is written, in the order of their ids."""
        return (BOS, *self.symbols, EQUALS, *self.answers, EOS)

    @property
    def d_vocab(self) -> int:
        """Number of tokens."""
        return len(self.tokens)

    @property
    def counted(self) -> slice:
        """Ids of the symbols."""
        return slice(1, self.equals)

    @property
    def equals(self) -> int:
        """Id of '='."""
        return len(self.symbols) + 1

    @property
    def answer_ids(self) -> slice:
        """Ids of the answers."""
        return slice(self.equals + 1, self.eos)

    @property
    def eos(self) -> int:
        """Id of '[EOS]', the last token."""
        return self.d_vocab - 1

    @cached_property
    def at_equals(self) -> Place:
        """Where the answer is asked for."""
        return Place("=", (self.equals,), 3, self.equals, self)

    @cached_property
    def at_answer(self) -> Place:
        """Where '[EOS]' is asked for."""
        return Place("answer", tuple(range(self.equals + 1, self.eos)), 2, self.equals + 1, self)

    def place(self, at: str) -> Place:
        """The place of a name; raise if there is none."""
        check_choice("at", at, ("=", "answer"))
        return self.at_equals if at == "=" else self.at_answer

    def answer(self, counts: Int[Tensor, "*batch symbol"]) -> Int[Tensor, "*batch"]:
        """The place among the answers of the right one."""
        return self.rule.answer(counts)

    def labels(self, counts: Int[Tensor, "*batch symbol"]) -> Tensor:
        """Of two answers, True for the first; else the place among them."""
        right = self.answer(counts)
        return right == 0 if len(self.answers) == 2 else right

    def ties(self, counts: Int[Tensor, "*batch symbol"]) -> Bool[Tensor, "*batch"] | None:
        """Where some comparison of the rule has equal sides; None where nobody knows."""
        return self.rule.ties(counts)

    def answer_token(self, labels: Tensor) -> Int[Tensor, "*batch"]:
        """Ids of the answers that labels stand for."""
        places = (~labels).long() if labels.dtype == torch.bool else labels
        return places + (self.equals + 1)

    @property
    def seen(self) -> Float[Tensor, "query key"]:
        """Zero where a query sees a key, -inf elsewhere; '[EOS]' is seen by none."""
        return _seen(len(self.symbols), len(self.answers))

    def describe(self) -> dict[str, Any]:
        """Plain values, for JSON; raise if the rule is a function."""
        if self.rule.texts is None:
            raise ValueError(
                "rule: expected conditions as text, which can be stored, got a function; write it "
                "as conditions such as 'n1 > n0', or keep the task in memory"
            )
        return {
            "symbols": list(self.symbols),
            "answers": list(self.answers),
            "rule": list(self.rule.texts),
        }

    def __repr__(self) -> str:
        return f"{' '.join(self.symbols)} → {' '.join(self.answers)}: {self.rule!r}"


@lru_cache(maxsize=64)
def _seen(n_symbols: int, n_answers: int) -> Float[Tensor, "query key"]:
    """Every query sees '[BOS]' to '='; answers see themselves, too."""
    equals, eos = n_symbols + 1, n_symbols + 2 + n_answers
    seen = torch.full((eos + 1, eos), -torch.inf, dtype=torch.float64)
    seen[equals:eos, : equals + 1] = 0.0
    answers = torch.arange(equals + 1, eos)
    seen[answers, answers] = 0.0
    return seen


def _texts(name: str, given: Any, at_least: int) -> tuple[str, ...]:
    if not isinstance(given, Iterable) or isinstance(given, bytes):
        raise TypeError(f"{name}: expected single characters or short strings, got {given!r:.80}")
    texts = tuple(given)
    for text in texts:
        fits = isinstance(text, str) and re.fullmatch(r"[^\s\[\]=]{1,8}", text) is not None
        if not fits or not text.isprintable():
            raise ValueError(
                f"{name}: expected strings of 1 to 8 printable characters without spaces, '=' and "
                f"brackets, got {text!r:.80}"
            )
    if not at_least <= len(texts) <= _MOST_TOKENS:
        raise ValueError(f"{name}: expected {at_least} to {_MOST_TOKENS} of them, got {len(texts)}")
    return texts


def _check_apart(tokens: Sequence[str]) -> None:
    """Raise unless any text over the tokens can be cut into them in one way only."""
    for one, text in enumerate(tokens):
        for other, longer in enumerate(tokens):
            if one != other and longer.startswith(text):
                problem = f"{text!r} twice" if text == longer else f"{text!r} and {longer!r}"
                raise ValueError(
                    "symbols and answers: expected different tokens, none of them the beginning of "
                    f"another, got {problem}"
                )
