"""What heads do together, in sentences: the same words for one model and for several.

Numbers come as text, with the interval they have. What the words stand for is in `heads.verdict`.
"""

from collections.abc import Mapping, Sequence

from count01_lens.common.text import in_words
from count01_lens.heads.metrics import METRICS

_WHERE = {"answer": "on the answer", "end": "on '[EOS]'"}
# A metric by what it tells, where a question has several.
_IN = {"s_acc": "in what linear probes read from them", "l_acc": "in what they answer together"}
_MEANING = {
    "s_acc": "s-acc (what linear probes read from the heads)",
    "l_acc": "l-acc (what the heads answer together)",
    "eos_l_acc": "l-acc",
}
_DOES = {
    "cooperate": "{} cooperate",
    "redundant": "{} are redundant",
    "neither": "{} neither cooperate nor are redundant on average",
    "undecided": "it is undecided whether {} cooperate or are redundant",
}


def where(question: str) -> str:
    """Name a question in a sentence."""
    return _WHERE.get(question, f"on the question {question!r}")


def what_heads_do(word: str, heads: str = "the heads") -> str:
    """Make a clause of one of the four words of a verdict."""
    return _DOES[word].format(heads)


def judged_by(metric: str) -> str:
    """Name a metric with what it measures."""
    return _MEANING.get(metric) or METRICS[metric].label


def headline(
    words: Mapping[str, Mapping[str, str]],
    heads: str = "the heads",
    against: Mapping[str, str] | None = None,
) -> str:
    """Answer "compete or cooperate?" in a sentence.

    Args:
        words: by question and metric.
        heads: the subject.
        against: by question, what is said of heads that work against the rest.

    Example:
        >>> headline({"end": {"eos_l_acc": "cooperate"}}, against={"end": some_work_against(1, 4)})
        "On '[EOS]', the heads cooperate, but 1 of 4 works against the rest."
    """
    against = against or {}
    everywhere = {word for by_metric in words.values() for word in by_metric.values()}
    if len(everywhere) == 1 < len(words):
        (word,) = everywhere
        told = [f"{in_words(map(where, words))}, {what_heads_do(word, heads)}"]
        told += [f"{clause} {where(question)}" for question, clause in against.items()]
        return _sentence(_joined(told, everywhere))
    parts = []
    for question, by_metric in words.items():
        told = [f"{where(question)}, {_by_metric(by_metric, heads)}"]
        told += [against[question]] if question in against else []
        parts.append(_joined(told, set(by_metric.values())))
        heads = "they"
    return _sentence("; ".join(parts))


def some_work_against(some: int, n_heads: int) -> str:
    """Count the heads that work against the rest."""
    return f"{some} of {n_heads} {'works' if some == 1 else 'work'} against the rest"


def mean_interactions(numbers: Mapping[str, Mapping[str, str]]) -> str:
    """Say what the mean interaction of two heads is, by question and metric."""
    told = [
        in_words(f"{number} by {judged_by(metric)}" for metric, number in by_metric.items())
        + f" {where(question)}"
        for question, by_metric in numbers.items()
    ]
    return (
        "The mean interaction of two heads, which is how much more one adds to a group that has "
        f"the other, is {', and '.join(told)}."
    )


def works_against(names: Sequence[str], question: str, metric: str = "") -> str:
    """Name the heads that work against the rest; the metric is given where there are several."""
    by = f", judged by {METRICS[metric].label}" if metric else ""
    noun, verb = ("Head", "works") if len(names) == 1 else ("Heads", "work")
    them = {1: "it", 2: "either of them"}.get(len(names), "any of them")
    return (
        f"{noun} {in_words(names)} {verb} against the rest {where(question)}{by}: on average, "
        f"groups do worse with {them}."
    )


def all_of(n_heads: int) -> str:
    """Name all heads."""
    return "both heads" if n_heads == 2 else f"all {n_heads} heads"


def heads_alone(counts: Mapping[str, int], bounds: Mapping[str, str]) -> str:
    """Say how many heads are of each category by themselves, with the bounds of categories.

    >>> heads_alone({"successful": 3, "failed": 1}, {"successful": "≥ 0.98", "failed": "≤ 0.60"})
    'Alone, 3 of 4 heads are classed as successful (≥ 0.98) and 1 as failed (≤ 0.60).'
    """
    n, found = sum(counts.values()), {kind: many for kind, many in counts.items() if many}
    first, *rest = [f"{many} as {kind} ({bounds[kind]})" for kind, many in found.items()]
    many, _, as_what = first.partition(" ")
    which = f"{many} of {n} heads" if rest else all_of(n) if n > 1 else "the only head"
    is_one = "is" if many == "1" else "are"
    return f"Alone, {in_words([f'{which} {is_one} classed {as_what}', *rest])}."


def how_many_are_needed(enough: int, n_heads: int) -> str:
    """Say how many heads it takes for 99 % of what all gain."""
    if enough == n_heads:
        return f"{all_of(n_heads).capitalize()} are needed for 99 % of what they gain together."
    verb = "is" if enough == 1 else "are"
    return f"{enough} of {n_heads} heads {verb} enough for 99 % of what all gain together."


def _by_metric(by_metric: Mapping[str, str], heads: str) -> str:
    """What heads do on a question: by one metric, by several that agree, or told apart."""
    if len(set(by_metric.values())) == 1:
        return what_heads_do(next(iter(by_metric.values())), heads)
    told = []
    for metric, word in by_metric.items():
        told.append(f"{what_heads_do(word, heads)} {_IN.get(metric, f'by {metric}')}")
        heads = "they"
    return ", but ".join(told)


def _joined(clauses: Sequence[str], words: set[str]) -> str:
    """Join clauses of a sentence: heads that work against the rest are at odds with cooperation."""
    return (", but " if words == {"cooperate"} else ", and ").join(clauses)


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
