"""Where in a sentence of Count01 a model is asked for the next token.

After '=' the next token is the answer, after the answer it is '[EOS]'. Users write a place as "="
or "answer"; the library knows it as a `Place`. Other counting languages have their own.
"""

from count01_lens.tasks.counting import At as At
from count01_lens.tasks.counting import CountingLanguage
from count01_lens.tasks.counting import Place as Place

COUNT01 = CountingLanguage.of("012", "45", "n1 > n0")
AT_EQUALS, AT_ANSWER = COUNT01.at_equals, COUNT01.at_answer
PLACES: dict[str, Place] = {place.name: place for place in (AT_EQUALS, AT_ANSWER)}


def place_at(at: str) -> Place:
    """Return the place that a user names; raise if there is none of that name."""
    return COUNT01.place(at)
