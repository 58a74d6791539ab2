"""Circuits with a known wiring, from which models with known roles are put together.

A circuit decides one *factor* of the answer; the answer of a model is the tuple of its factors, and
its logit is the sum of one *lane* per factor. What heads read and write is spelled in lanes: one
lane per token, one per position, a lane that is always 1, scratch lanes between layers, and one
lane per value of each factor. A circuit has *slots*: each must be filled by at least one head.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

Lane = tuple[str, int, int]
Row = Mapping[Lane, float]
Random = np.random.Generator

ONE: Lane = ("one", 0, 0)
BOS, QUERY = 0, 1  # the first two tokens of every vocabulary
HARD = 30.0  # a score that leaves nothing to other tokens
NO_MATCH = HARD / 4  # of '[BOS]', where heads look that find nothing
DEFAULT = 0.25  # how far one value of each factor leads as long as no head says anything
COUNTED = 100.0  # weight of '[BOS]' beside 1 for each counted token: n·K / (n + K) is nearly n


def token(number: int) -> Lane:
    """The lane that is 1 where a token stands."""
    return ("token", number, 0)


def position(number: int) -> Lane:
    """The lane that is 1 at a position; only models with learned positions write it."""
    return ("position", number, 0)


def scratch(number: int, value: int) -> Lane:
    """A lane that heads of the first layer write and heads of the second read."""
    return ("scratch", number, value)


def answer(factor: int, value: int) -> Lane:
    """The lane of one value of a factor, which the unembedding reads."""
    return ("answer", factor, value)


@dataclass(frozen=True)
class Wiring:
    """What a head does: scores are sums of query times key, and what is read is written."""

    scores: tuple[tuple[Row, Row], ...]
    moves: tuple[tuple[Row, Row], ...]


@dataclass(frozen=True)
class Slot:
    """A part of a circuit that needs a head.

    Attributes:
        layers: where such a head may be; None for anywhere.
        saturates: whether decisions are the same with several heads or stronger ones, so that
            copies change nothing.
        answers: whether it writes into the answer, so that a head can push against it.
    """

    wiring: Wiring
    layers: tuple[int, ...] | None = None
    saturates: bool = True
    answers: bool = True


@dataclass(frozen=True)
class Body:
    """What a circuit puts into a prompt: right after '[BOS]', anywhere, and at the end."""

    chunks: tuple[tuple[int, ...], ...] = ()
    front: tuple[int, ...] = ()
    last: int | None = None


@dataclass(frozen=True)
class Circuit:
    """How one factor of the answer is computed.

    Attributes:
        slots: what it needs.
        n_values: number of values of the factor.
        body: draws tokens for which a value is right.
        bias: by how much each value leads without any head.
        substitutes: whether its slots partly stand in for each other, rather than cooperate.
    """

    name: str
    slots: tuple[Slot, ...]
    n_values: int
    body: Callable[[Random, int], Body] = field(repr=False)
    bias: tuple[float, ...]
    substitutes: bool = False


@dataclass
class Vocabulary:
    """Hands out tokens nobody has."""

    n: int = 2

    def new(self, n: int) -> list[int]:
        """Some more tokens."""
        self.n += n
        return list(range(self.n - n, self.n))


Maker = Callable[[Random, Vocabulary, int, int], Circuit]


def attend(weights: Mapping[int, float]) -> tuple[tuple[Row, Row], ...]:
    """Attend to tokens, wherever the question is asked."""
    return (({ONE: 1.0}, {token(one): weight for one, weight in weights.items()}),)


def show(tokens: list[int], factor: int, strength: float = 1.0) -> tuple[tuple[Row, Row], ...]:
    """Write which token is attended to into the lanes of a factor."""
    return tuple(
        ({token(one): 1.0}, {answer(factor, value): strength}) for value, one in enumerate(tokens)
    )


def default_of(rng: Random, n_values: int) -> tuple[float, ...]:
    """Let some value lead, and no two be equal, which would leave decisions to rounding."""
    return tuple((rng.permutation(n_values) * DEFAULT / (n_values - 1)).tolist())


def find(rng: Random, vocabulary: Vocabulary, factor: int, n_ctx: int) -> Circuit:
    """Which token of a class is there? One head finds it."""
    kinds = vocabulary.new(int(rng.integers(2, 5)))
    wiring = Wiring(attend(dict.fromkeys(kinds, HARD)), show(kinds, factor))
    body = lambda rng, value: Body(((kinds[value],),))  # noqa: E731
    return Circuit("find", (Slot(wiring),), len(kinds), body, default_of(rng, len(kinds)))


def largest(rng: Random, vocabulary: Vocabulary, factor: int, n_ctx: int) -> Circuit:
    """Which is the largest of several tokens? One head attends the more, the larger."""
    kinds = vocabulary.new(int(rng.integers(2, 5)))
    weights = {one: HARD * (rank + 2) / 2 for rank, one in enumerate(kinds)}
    wiring = Wiring(attend(weights), show(kinds, factor))

    def body(rng: Random, value: int) -> Body:
        smaller = rng.integers(0, value + 1, 2)
        return Body(((kinds[value],), *((kinds[rank],) for rank in smaller)))

    # The order of its scores is one that a norm before a later layer would not leave.
    return Circuit("largest", (Slot(wiring, (0,)),), len(kinds), body, default_of(rng, len(kinds)))


def majority(rng: Random, vocabulary: Vocabulary, factor: int, n_ctx: int) -> Circuit:
    """Which of two tokens is more frequent? One head attends to all of them alike."""
    kinds, total = vocabulary.new(2), 5
    wiring = Wiring(attend(dict.fromkeys(kinds, HARD)), show(kinds, factor, strength=2.0))

    def body(rng: Random, value: int) -> Body:
        fewer = int(rng.integers(2))
        return Body(((kinds[value],),) * (total - fewer) + ((kinds[1 - value],),) * fewer)

    # Its attention has to be even, which a norm before a later layer would not leave it.
    return Circuit("majority", (Slot(wiring, (0,)),), 2, body, default_of(rng, 2))


def compare(rng: Random, vocabulary: Vocabulary, factor: int, n_ctx: int) -> Circuit:
    """Which of two tokens is more frequent? Two heads count one each."""
    kinds = vocabulary.new(2)
    slots = []
    for value, one in enumerate(kinds):
        scores = attend({BOS: HARD + float(np.log(COUNTED)), one: HARD})
        moves = (({token(one): 1.0}, {answer(factor, value): COUNTED / 2}),)
        slots.append(Slot(Wiring(scores, moves), (0,), saturates=False, answers=False))

    def body(rng: Random, value: int) -> Body:
        fewer = int(rng.integers(0, 3))
        more = fewer + int(rng.integers(2, 4))
        return Body(((kinds[value],),) * more + ((kinds[1 - value],),) * fewer)

    return Circuit("compare", tuple(slots), 2, body, default_of(rng, 2))


def both_or_either(name: str, needed: float) -> Maker:
    """Are both marks there, or either? Two heads look for one mark each, and add up."""

    def make(rng: Random, vocabulary: Vocabulary, factor: int, n_ctx: int) -> Circuit:
        kinds = [vocabulary.new(2), vocabulary.new(2)]
        slots = []
        for off, on in kinds:
            moves = (({token(on): 1.0}, {answer(factor, 1): 1.0}),)
            wiring = Wiring(attend({off: HARD, on: HARD}), moves)
            slots.append(Slot(wiring, (0,), saturates=False, answers=False))
        either = [(0, 0), (0, 1), (1, 0), (1, 1)]

        def body(rng: Random, value: int) -> Body:
            fitting = [bits for bits in either if (sum(bits) > needed) == value]
            bits = fitting[rng.integers(len(fitting))]
            return Body(tuple((pair[bit],) for pair, bit in zip(kinds, bits, strict=True)))

        return Circuit(name, tuple(slots), 2, body, (needed, 0.0), substitutes=name == "or")

    return make


def at_position(rng: Random, vocabulary: Vocabulary, factor: int, n_ctx: int) -> Circuit:
    """Which token stands at a certain position? One head attends to the position."""
    kinds = vocabulary.new(int(rng.integers(2, 4)))
    asked = int(rng.integers(len(kinds)))
    scores = (({ONE: 1.0}, {position(asked + 1): HARD}),)

    def body(rng: Random, value: int) -> Body:
        order = [int(one) for one in rng.permutation(kinds)]
        there = order.index(kinds[value])
        order[asked], order[there] = order[there], order[asked]
        return Body(front=tuple(order))

    wiring = Wiring(scores, show(kinds, factor))
    return Circuit("position", (Slot(wiring),), len(kinds), body, default_of(rng, len(kinds)))


def induction(rng: Random, vocabulary: Vocabulary, factor: int, n_ctx: int) -> Circuit:
    """What came after this token before? A previous-token head feeds an induction head."""
    n = int(rng.integers(2, 4))
    keys, values = vocabulary.new(n), vocabulary.new(n)
    before = tuple(({position(b): 1.0}, {position(a): HARD}) for a, b in pairwise(range(n_ctx)))
    moves = tuple(({token(key): 1.0}, {scratch(factor, i): 1.0}) for i, key in enumerate(keys))
    match = attend({BOS: NO_MATCH}) + tuple(
        ({token(key): 1.0}, {scratch(factor, i): HARD}) for i, key in enumerate(keys)
    )

    def body(rng: Random, value: int) -> Body:
        order = [int(one) for one in rng.permutation(keys)]
        chunks = tuple(zip(order, values, strict=True))
        return Body(chunks, last=order[value])

    slots = (
        Slot(Wiring(before, moves), (0,), answers=False),
        Slot(Wiring(match, show(values, factor)), (1,)),
    )
    return Circuit("induction", slots, n, body, default_of(rng, n))


def parity(rng: Random, vocabulary: Vocabulary, factor: int, n_ctx: int) -> Circuit:
    """Parity of two bits: the first layer fetches one, which turns the second to the other.

    The other bit is written twice, as it is and flipped.
    """
    selectors, plain, flipped = vocabulary.new(2), vocabulary.new(2), vocabulary.new(2)
    fetch = tuple(({token(one): 1.0}, {scratch(factor, i): 1.0}) for i, one in enumerate(selectors))
    chosen = attend({BOS: NO_MATCH}) + tuple(
        ({scratch(factor, i): 1.0}, {token(one): HARD for one in pair})
        for i, pair in enumerate((plain, flipped))
    )
    moves = tuple(
        ({token(pair[value]): 1.0 for pair in (plain, flipped)}, {answer(factor, value): 1.0})
        for value in (0, 1)
    )

    def body(rng: Random, value: int) -> Body:
        bit = int(rng.integers(2))
        other = value ^ bit
        return Body(((selectors[bit],), (plain[other],), (flipped[1 - other],)))

    slots = (
        Slot(Wiring(attend(dict.fromkeys(selectors, HARD)), fetch), (0,), answers=False),
        Slot(Wiring(chosen, moves), (1,)),
    )
    return Circuit("parity", slots, 2, body, default_of(rng, 2))


def pass_on(rng: Random, vocabulary: Vocabulary, factor: int, n_ctx: int) -> Circuit:
    """The first layer gathers a token at a marker, the second fetches it from there."""
    kinds, (marker,) = vocabulary.new(int(rng.integers(2, 4))), vocabulary.new(1)
    gather = tuple(({token(one): 1.0}, {scratch(factor, i): 1.0}) for i, one in enumerate(kinds))
    fetch = tuple(({scratch(factor, i): 1.0}, {answer(factor, i): 1.0}) for i in range(len(kinds)))
    body = lambda rng, value: Body(((kinds[value], marker),))  # noqa: E731
    slots = (
        Slot(Wiring(attend(dict.fromkeys(kinds, HARD)), gather), (0,), answers=False),
        Slot(Wiring(attend({marker: HARD}), fetch), (1,)),
    )
    return Circuit("pass on", slots, len(kinds), body, default_of(rng, len(kinds)))


ONE_LAYER: tuple[Maker, ...] = (
    find, largest, majority, compare, both_or_either("and", 1.5), both_or_either("or", 0.5)
)  # fmt: skip
WITH_POSITIONS: tuple[Maker, ...] = (at_position,)
TWO_LAYERS: tuple[Maker, ...] = (parity, pass_on)
TWO_LAYERS_WITH_POSITIONS: tuple[Maker, ...] = (induction,)
