"""What things are called where people read of an analysis: heads, answers, prompts, tokens.

Count01 has words of its own. Any other task is spoken of as what it is: prompts, answers that are
tokens of some model, subsets by the names that the user gave them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from count01_lens.common.text import plural
from count01_lens.common.types import HookedTransformer
from count01_lens.heads.analysis import HeadAnalysis
from count01_lens.heads.tables import head_labels
from count01_lens.models.stored import Model, hooked
from count01_lens.tasks.count01 import Count01

LONGEST_TOKEN = 24  # characters of a token that are shown
# What stands in the place of heads that are taken out.
_REPLACED = {
    "zero": "set to zero",
    "mean": "set to their mean over training prompts",
    "resample": "resampled from other training prompts",
}


@dataclass(frozen=True)
class Words:
    """How to speak of an analysis.

    Attributes:
        heads: a name for each: its number or, where there are several layers, "layer.head".
        answers: what the model chooses among, as shown.
        is_count01: whether the task is the paper's.
    """

    heads: tuple[str, ...]
    answers: tuple[str, ...]
    is_count01: bool

    @classmethod
    def of(cls, analysis: HeadAnalysis, model: Model | None = None) -> "Words":
        """Find the words; the tokenizer of the model is asked for the texts of tokens."""
        model = analysis.model if model is None else model
        return cls(
            tuple(head_labels(analysis.heads)), _answers(analysis, model), of_count01(analysis)
        )

    @property
    def prompts(self) -> str:
        """What the model is given, several of them."""
        return "sentences" if self.is_count01 else "prompts"

    @property
    def where(self) -> str:
        """Where heads are looked at."""
        return "at '='" if self.is_count01 else "at the query position"

    @property
    def layers(self) -> bool:
        """Whether heads are named with their layer."""
        return any("." in name for name in self.heads)

    def of_heads(self, numbers: Sequence[int]) -> list[str]:
        """Names of some heads."""
        return [self.heads[number] for number in numbers]


def of_count01(analysis: HeadAnalysis) -> bool:
    """Whether an analysis is of Count01; a loaded one is known by what it was asked."""
    if analysis.task is not None:
        return isinstance(analysis.task, Count01)
    answer = analysis.data.answer
    return set(analysis.data.asked) == {"answer", "end"} and set(answer.subsets) == {
        "ties",
        "others",
    }


def others_replaced(analysis: HeadAnalysis) -> str:
    """What is done to the heads outside a group."""
    mode = getattr(analysis.data, "ablation", "zero")
    return _REPLACED.get(mode, f"ablated ({mode})")


def said_with(analysis: HeadAnalysis, meaning: str) -> str:
    """The meaning of a metric, with what is done to the heads outside a group."""
    replaced = others_replaced(analysis)
    return meaning.replace("taken out", replaced).replace("set to zero", replaced)


def title_of(analysis: HeadAnalysis, words: Words) -> str:
    """A heading for all that was found."""
    n_layers = int(analysis.heads["layer"].max()) + 1
    heads = plural(len(analysis.heads), "head")
    within = f" in {n_layers} layers" if n_layers > 1 else ""
    name = "Count01" if words.is_count01 else f"a task with {len(words.answers)} answers"
    return f"What each head does: a model with {heads}{within} on {name}"


def token_texts(model: HookedTransformer | None, tokens: Sequence[int]) -> list[str]:
    """Texts of tokens as the model's tokenizer writes them; their ids where there is none."""
    tokenizer: Any = getattr(model, "tokenizer", None)
    if tokenizer is None:
        return [str(token) for token in tokens]
    return [_shown(tokenizer.decode([token]), token) for token in tokens]


def output_texts(model: HookedTransformer | None, tokens: Sequence[int]) -> list[str]:
    """Texts of what logits stand for: tokens, or numbers where the model has other outputs."""
    if model is not None and model.cfg.d_vocab_out != model.cfg.d_vocab:
        return [str(token) for token in tokens]
    texts = token_texts(model, tokens)
    has_texts = getattr(model, "tokenizer", None) is not None
    return [f"'{text}'" for text in texts] if has_texts else texts


def _shown(text: str, token: int) -> str:
    """A token on one line: what cannot be seen is written as in Python, what is long is cut."""
    seen = "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )
    if not seen:
        return f"[{token}]"
    return seen if len(seen) <= LONGEST_TOKEN else seen[: LONGEST_TOKEN - 1] + "…"


def _answers(analysis: HeadAnalysis, model: Model | None) -> tuple[str, ...]:
    if of_count01(analysis):
        return "'4'", "'5'"
    n = analysis.data.answer.rest.shape[1]
    if analysis.task is None:
        return tuple(f"choice {number}" for number in range(n))
    choices = analysis.task.questions["answer"].choices
    return tuple(output_texts(None if model is None else hooked(model), choices))
