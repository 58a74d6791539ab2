"""What each head of an analysis does by its linear probe, and how many ignore what in which way."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, get_args

from count01_lens.common.text import in_words, plural
from count01_lens.counts.closed_form import CountForm
from count01_lens.counts.mechanism import Mechanism, Way
from count01_lens.heads.tables import readouts_of_probes
from count01_lens.models.stored import Model

if TYPE_CHECKING:
    from count01_lens.heads.analysis import HeadAnalysis

_WAYS: Mapping[Way, str] = {
    "attention": "by attention",
    "value": "by value",
    "both": "by both together",
}


def mechanisms(analysis: "HeadAnalysis", model: Model | None = None) -> tuple[Mechanism, ...]:
    """Describe every head; none where there are no counts, no linear probe, or no model.

    Args:
        model: of a loaded analysis, which has none itself.
    """
    model = analysis.model if model is None else model
    if model is None or analysis.counts is None or analysis.fits is None:
        return ()
    found = readouts_of_probes(CountForm.from_models([model]), analysis.fits)
    failed = analysis.heads["category"] == "failed"
    return tuple(Mechanism(*each) for each in zip(found or (), failed.tolist(), strict=False))


def ways_in_words(found: Sequence[Mechanism], successful: Sequence[bool]) -> str:
    """Count how successful heads ignore what they do not count: by attention, value, or both.

    Empty where no such head ignores anything.
    """
    good = [each for each, is_good in zip(found, successful, strict=bool(found)) if is_good]
    sentences = []
    for place in range(len(good[0].effects) if good else 0):
        ways = Counter(each.ignored[place] for each in good if place in each.ignored)
        if not ways:
            continue
        symbol, n = f"'{good[0].readout.language.symbols[place]}'", ways.total()
        told = [f"{ways[way]} {_WAYS[way]}" for way in get_args(Way) if ways[way]]
        if n == len(good) and len(told) == 1:
            heads = f"All {n} successful heads ignore" if n > 1 else "The successful head ignores"
            sentences.append(f"{heads} {symbol} {_WAYS[next(iter(ways))]}.")
        else:
            heads = f"{n} {'ignores' if n == 1 else 'ignore'}"
            of = plural(len(good), "successful head")
            sentences.append(f"Of {of}, {heads} {symbol}: {in_words(told)}.")
    return " ".join(sentences)
