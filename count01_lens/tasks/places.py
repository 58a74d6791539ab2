"""Where in a sentence a model is asked for the next token.

After '=' the next token is the answer, after the answer it is '[EOS]'. Users write a place as "="
or "answer"; the library knows it as a `Place`.
"""

from dataclasses import dataclass
from typing import Literal

from count01_lens.common.validation import check_choice
from count01_lens.tasks.language import Token

At = Literal["=", "answer"]


@dataclass(frozen=True)
class Place:
    """A query position.

    Attributes:
        queries: the tokens that may stand there and ask. In the order of the vocabulary they are
            neighbours, so that a table's rows for them are a slice, and no copy.
        from_end: how many tokens from the end of a whole sentence it is.
        column: its position in the compact form `[BOS] 0 1 2 = a`.
    """

    name: At
    queries: tuple[Token, ...]
    from_end: int
    column: int

    @property
    def rows(self) -> slice:
        """The queries as rows of a table over the vocabulary."""
        return slice(self.queries[0], self.queries[-1] + 1)


AT_EQUALS = Place("=", (Token.EQUALS,), from_end=3, column=4)
AT_ANSWER = Place("answer", (Token.FOUR, Token.FIVE), from_end=2, column=5)
PLACES: dict[str, Place] = {place.name: place for place in (AT_EQUALS, AT_ANSWER)}


def place_at(at: str) -> Place:
    """Return the place that a user names; raise if there is none of that name."""
    check_choice("at", at, tuple(PLACES))
    return PLACES[at]
