"""What a head does, in a sentence: which tokens it counts, and how it ignores the others.

What one token adds to a linear read-out is β_t = e^{S_t}(w·v_t + b): how much it is attended to,
times what its value says along the probe. So a token is ignored where it is not attended to, or
where its value says nothing. Next to the tokens that are counted, in natural logarithms and at
least 0,

    A = mean of their S − S_t                   how much less the token is attended to
    V = mean of their log |w·v + b| − that of t   how much less its value says

A + V tells how much weaker it acts, and A / (A + V) is the share of attention in that. Of several
answers, what a value says is how far it moves them apart.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np
from jaxtyping import Float

from count01_lens.common.text import in_words, number
from count01_lens.common.types import Array
from count01_lens.counts.choice_readout import ChoiceReadout
from count01_lens.counts.readout import CountReadout, ratio_names

Way = Literal["attention", "value", "both"]
# A hundred tokens that each add less than this move what is counted by less than two.
SLIGHT = 0.02
_LONG = 1000  # no sentence that models are asked has more tokens of symbols
_MINOR = 0.25  # what adds less than this next to the strongest is told apart
_BEYOND = math.log(1e6)  # a ratio of attention of which nobody wants to know more
_LIKE = 2.0  # attention within this factor is about the same


@dataclass(frozen=True, eq=False)
class Mechanism:
    """What a linear read-out of one head counts, and what it ignores.

    Attributes:
        readout: the read-out, usually that of the head's probe.
        failed: whether it hardly tells the right answer.
    """

    readout: CountReadout | ChoiceReadout
    failed: bool = False

    @cached_property
    def effects(self) -> Float[Array, " symbol"]:
        """What one token of each symbol adds, next to that which adds most; at least 0."""
        logs = np.asarray(self.readout.scores[1:-1] + self._said)
        with np.errstate(invalid="ignore"):
            found = np.exp(logs - logs.max())
        return np.asarray(np.nan_to_num(found))

    @property
    def counted(self) -> tuple[int, ...]:
        """Symbols that are counted, by their places."""
        return tuple(np.flatnonzero(self.effects > SLIGHT).tolist())

    @property
    def main(self) -> tuple[int, ...]:
        """Those of them that add about as much as the strongest."""
        return tuple(np.flatnonzero(self.effects > _MINOR).tolist())

    @property
    def ignored(self) -> dict[int, Way]:
        """Symbols that are not, and how each is ignored; empty where nothing is counted."""
        if not self.counted:
            return {}
        others = set(range(len(self.effects))) - set(self.counted)
        return {place: way_of(*self.leads(place)) for place in sorted(others)}

    @property
    def only(self) -> int | None:
        """The symbol that gets at least 50 times the attention of any other, if there is one."""
        *_, first = order = np.argsort(self.readout.scores[1:-1], kind="stable").tolist()
        scores = self.readout.scores[1:-1]
        if len(order) > 1 and not scores[first] - scores[order[-2]] >= -math.log(SLIGHT):
            return None
        return int(first)

    def leads(self, place: int) -> tuple[float, float]:
        """A and V of one symbol, behind those that count most."""
        ahead = [other for other in self.main if other != place]
        attention = lead_of(self.readout.scores[1:-1], ahead, place)
        return attention, lead_of(self._said, ahead, place)

    def __str__(self) -> str:
        """Write it as a clause: `compares 1s with 0s; ignores '2' by attention (w02 = 92)`."""
        several = len(self.effects) > 1
        if self.failed and self.only is not None and several:
            return self._follows()
        clauses = [self._counts(), *self._minor()]
        if self.only is not None and len(self.main) > 1:
            clauses.append(f"attends almost only to {self._only()}")
        clauses += [self._ignores(way) for way in get_args(Way) if way in self.ignored.values()]
        return "; ".join([*clauses, *self._ends()])

    @cached_property
    def _said(self) -> Float[Array, " symbol"]:
        """How much the value of each symbol says, in logarithms."""
        values = self.readout.values
        sizes = np.abs(values) if values.ndim == 1 else np.ptp(values, axis=0)
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(sizes[1:-1]))

    @property
    def _symbols(self) -> tuple[str, ...]:
        return self.readout.language.symbols

    def _counts(self) -> str:
        """Say what is counted, and what for."""
        if not self.counted or not np.any(self.readout.coefficients[..., 1:]):
            return f"{self.readout}, whatever the counts"
        sides = self._sides(self.main)
        if len(self.main) == 1:
            how = "only" if len(self.counted) == 1 else "mainly"
            return f"counts {how} {many(self._symbols[self.main[0]])}"
        weights = self._weights()
        if len(sides) == 1:
            text = f"counts {self._many(self.main)} together"
        elif isinstance(self.readout, ChoiceReadout):
            said = (f"{self._named(places)} for {quoted(name)}" for name, places in sides.items())
            weights = "; ".join(filter(None, [", ".join(said), weights]))
            text = f"compares {self._many(self.main)}"
        else:
            text = "compares " + " with ".join(self._many(places) for places in sides.values())
        return f"{text} ({weights})" if weights else text

    def _sides(self, chosen: Sequence[int]) -> dict[str, list[int]]:
        """Symbols by the answer that they speak for."""
        found: dict[str, list[int]] = {}
        for answer, name in enumerate(self.readout.language.answers):
            places = [place for place in chosen if self._speaks[place] == answer]
            if places:
                found[name] = places
        return found

    def _answer_of(self, place: int) -> str:
        """The answer that a symbol speaks for."""
        return quoted(self.readout.language.answers[self._speaks[place]])

    @cached_property
    def _speaks(self) -> list[int]:
        """The answer that each symbol speaks for."""
        betas = self.readout.coefficients[..., 1:]
        return list(betas.argmax(axis=0) if betas.ndim == 2 else (betas < 0).astype(int))

    def _weights(self) -> str:
        """Say which of the symbols that count most weigh otherwise than the first."""
        unit, *others = [p for p in self.readout.language.rule.order() if p in self.main]
        ratios = {place: float(self.effects[place] / self.effects[unit]) for place in others}
        texts = [
            f"{one(self._symbols[place])} weighs {ratio:.3g}"
            for place, ratio in ratios.items()
            if abs(ratio - 1) > SLIGHT
        ]
        times = f" times as much as {one(self._symbols[unit])}"
        return in_words(texts) + times if texts else ""

    def _minor(self) -> list[str]:
        """Say what the symbols weigh that add less, but are not ignored."""
        texts = []
        for place in self.counted:
            if place not in self.main:
                alike = [other for other in self.main if self._speaks[other] == self._speaks[place]]
                like = alike[0] if alike else self.main[0]
                ratio = float(self.effects[place] / self.effects[like])
                this, that = one(self._symbols[place]), one(self._symbols[like])
                if alike:
                    texts.append(f"{this} counts as {amount(ratio)} of {that}")
                elif isinstance(self.readout, ChoiceReadout):  # it takes nothing from the other
                    ours, theirs = (self._answer_of(each) for each in (place, like))
                    text = f"{this} counts for {ours}, {amount(ratio)} times as much as {that}"
                    texts.append(f"{text} for {theirs}")
                else:
                    texts.append(f"{this} counts as {amount(-ratio)} of {that}")
        return texts

    def _ignores(self, way: Way) -> str:
        """Say how some symbols are ignored, with the attention that they get."""
        places = [place for place, how in self.ignored.items() if how == way]
        named, ratios = self._named(places), self._ratios(places)
        if way == "attention":
            return f"ignores {named} by attention ({ratios})"
        if way == "both":
            return f"ignores {named} partly by attention ({ratios}), partly by value"
        first = 0 if 0 not in places else self.counted[0]
        other = quoted(self._symbols[first])
        factors = np.exp(self.readout.scores[1 + first] - self.readout.scores[1:-1][places])
        much = "less than" if (factors > _LIKE).all() else "about as much as"
        much = "more than" if (factors < 1 / _LIKE).all() else much
        alike = ((factors <= _LIKE) & (factors >= 1 / _LIKE)).all()
        if much == "about as much as" and not alike:
            much = "otherwise than"
        return (
            f"attends to {named} {much} to {other} ({ratios}), but the "
            f"{'value' if len(places) == 1 else 'values'} of {named} "
            f"{'adds' if len(places) == 1 else 'add'} almost nothing along the probe"
        )

    def _follows(self) -> str:
        """Say what the output follows of a head that fails and attends to a single symbol."""
        assert self.only is not None
        scores, name = self.readout.scores, many(self._symbols[self.only])
        ends, others = scores[[0, -1]].max(), np.delete(scores[1:-1], self.only).max()
        beside = ends - scores[1 + self.only] >= math.log(SLIGHT)
        # Of the others, even a long sentence's get next to nothing beside '[BOS]' and '='.
        if beside and others + math.log(_LONG) < ends + math.log(SLIGHT):
            text = f"counts only {name}: attends to {self._only()}"
        else:
            text = (
                f"among symbols, attends almost only to {self._only()}: with enough {name}, its "
                "output hardly depends on any count"
            )
        return "; ".join([text, *self._ends()])

    def _only(self) -> str:
        """The symbol that gets nearly all the attention that symbols get."""
        assert self.only is not None
        scores = self.readout.scores[1:-1]
        lead = scores[self.only] - np.delete(scores, self.only).max()
        name = quoted(self._symbols[self.only])
        if not lead < _BEYOND:
            return f"{name}, not to any other symbol"
        return f"{name}, at least {amount(math.exp(lead))} times as much as to any other symbol"

    def _ends(self) -> list[str]:
        """Say that '[BOS]' or '=' gets as much attention as many symbols, if so."""
        scores, symbols = self.readout.scores, self.readout.scores[1:-1]
        best = int(symbols.argmax())
        end, lead = max((("[BOS]", scores[0]), ("=", scores[-1])), key=lambda each: each[1])
        lead = float(lead - symbols[best])
        if not lead >= -math.log(SLIGHT):
            return []
        if lead > _BEYOND:
            return [f"attends almost only to '{end}'"]
        much = f"{amount(math.exp(lead))} {many(self._symbols[best])}"
        return [f"attends to '{end}' as much as to {much}"]

    def _ratios(self, places: Sequence[int]) -> str:
        """The attention ratios that tell of some symbols: w02 = 1.4."""
        names, scores = ratio_names(self.readout.language), self.readout.scores[1:-1]
        with np.errstate(over="ignore"):
            ratios = np.exp(scores[0] - scores[1:])
        # Ratios are to the first symbol; if that is one of them, those to what is counted tell it.
        told = {*places, *self.counted} if 0 in places else set(places)
        shown = sorted(told - {0}) or list(range(1, len(scores)))
        return ", ".join(f"{names[n - 1]} = {amount(float(ratios[n - 1]))}" for n in shown)

    def _named(self, places: Sequence[int]) -> str:
        return in_words(quoted(self._symbols[place]) for place in places)

    def _many(self, places: Sequence[int]) -> str:
        return in_words(many(self._symbols[place]) for place in places)


def lead_of(logs: Float[Array, " symbol"], ahead: Sequence[int], behind: int) -> float:
    """How far the mean of some is ahead of another, at least 0.

    Where neither the one behind nor one of the others acts at all, it is not behind.
    """
    lead = float(sum(float(logs[place]) for place in ahead) / len(ahead) - float(logs[behind]))
    return 0.0 if math.isnan(lead) else max(0.0, lead)


def attention_share(a: float, v: float) -> float:
    """A / (A + V), also where one of them is infinite; NaN where both are, or both are 0."""
    if a == v and a in (0, math.inf):
        return math.nan
    return float(a == math.inf) if math.inf in (a, v) else a / (a + v)


def way_of(a: float, v: float) -> Way:
    """By attention or value where that is more than two thirds of it, else by both.

    >>> way_of(4.8, 2.0), way_of(0.4, 6.2), way_of(3.8, 3.9)
    ('attention', 'value', 'both')
    """
    share = attention_share(a, v)
    if share > 2 / 3:
        return "attention"
    return "value" if share < 1 / 3 else "both"


def amount(value: float) -> str:
    """Write a number with two digits.

    >>> amount(58341.2), amount(1.396), amount(0.00025451)
    ('58,000', '1.4', '0.00025')
    """
    return number(float(f"{value:.2g}"))


def quoted(symbol: str) -> str:
    """A token as it is written in a sentence."""
    return f"'{symbol}'"


def one(symbol: str) -> str:
    """One token of a kind."""
    return f"a '{symbol}'"


def many(symbol: str) -> str:
    """Several tokens of a kind: 1s, but 'a's."""
    return f"{symbol}s" if symbol.isdigit() else f"'{symbol}'s"
