"""What is chosen in the explorer, as values of Python: checked, and as code that reproduces it.

The page writes the same code by itself (data/explorer/wording.js); a test holds the two together.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from count01_lens.attention.patches import Others, Ratios, Weights
from count01_lens.common.validation import check_choice
from count01_lens.models.hooks import head_numbers
from count01_lens.tasks.counting import CountingLanguage
from count01_lens.tasks.sentences import encode_sentence

_START = (10, 12, 7, 9, 6)
_SHORT = 60  # a sentence of more symbols is written as a sum of repetitions


@dataclass(frozen=True)
class Choices:
    """What the user has set.

    Attributes:
        language: of the model.
        n_heads: that the model has.
        n_ctx: how many tokens it reads.
        heads: that are patched; None for all.
        ratios: by symbol, None where heads keep their own.
        weights: by token, in the place of ratios; or None.
        others: what '[BOS]' and '=' get.
        off: heads that are switched off.
        counts: of the sentence.
        text: the sentence as it was typed; None if counts were set.
        page: the head whose page is open, if any.
    """

    language: CountingLanguage
    n_heads: int
    n_ctx: int
    heads: tuple[int, ...] | None
    ratios: Mapping[str, float | None]
    weights: Mapping[str, float] | None
    others: Others
    off: tuple[int, ...]
    counts: tuple[int, ...]
    text: str | None = None
    page: int | None = None

    def __post_init__(self) -> None:
        for name in ("heads", "off"):
            given = getattr(self, name)
            if given:
                numbers = tuple(sorted(set(head_numbers(given, 1, self.n_heads))))
                object.__setattr__(self, name, numbers)
        if not self.heads:
            object.__setattr__(self, "heads", None)
        check_choice("others", self.others, ("zero", "keep"))
        length = sum(self.counts) + 2
        if length > self.n_ctx:
            raise ValueError(f"sentence: {length} tokens, but the model reads {self.n_ctx} (n_ctx)")
        symbols = self.language.symbols
        for symbol in self.ratios:
            check_choice("ratios: symbol", symbol, symbols[1:])
        full = {symbol: self.ratios.get(symbol) for symbol in symbols[1:]}
        object.__setattr__(self, "ratios", full)
        if self.weights is not None:
            for token in self.weights:
                check_choice("weights: token", token, self.language.tokens)
            order = {t: self.weights[t] for t in self.language.tokens if t in self.weights}
            object.__setattr__(self, "weights", order)
        assert isinstance(self.patches, tuple)  # they check themselves

    @property
    def patches(self) -> tuple[Ratios | Weights, ...]:
        """The patch as the library understands it; none where heads keep their own ratios."""
        if self.weights is not None:
            return (Weights(weights=self.weights, heads=self.heads, others=self.others),)
        given = {symbol: ratio for symbol, ratio in self.ratios.items() if ratio is not None}
        return (Ratios(ratios=given, heads=self.heads, others=self.others),) if given else ()

    @property
    def sentence(self) -> str:
        """The sentence, up to its '='."""
        if self.text is not None:
            return self.text
        pairs = zip(self.language.symbols, self.counts, strict=True)
        return "".join(symbol * n for symbol, n in pairs) + "="

    def with_sentence(self, text: str) -> "Choices":
        """Set another sentence."""
        if not isinstance(text, str):
            raise TypeError(f"sentence: expected text such as '0110=', got {text!r:.80}")
        ids = encode_sentence(text.strip(), self.language)
        if len(ids) > self.n_ctx:
            raise ValueError(f"sentence: {len(ids)} tokens, but the model reads {self.n_ctx}")
        counts = tuple(ids.count(1 + place) for place in range(len(self.language.symbols)))
        return replace(self, counts=counts, text=text.strip())

    def to_json(self) -> dict[str, Any]:
        """Plain values for the page; JSON has no infinity."""
        return {
            "heads": None if self.heads is None else list(self.heads),
            "ratios": {
                symbol: "inf" if ratio == math.inf else ratio
                for symbol, ratio in self.ratios.items()
            },
            "weights": None if self.weights is None else dict(self.weights),
            "others": self.others,
            "off": list(self.off),
            "counts": list(self.counts),
            "text": self.text,
            "page": self.page,
        }

    def from_json(self, given: Mapping[str, Any]) -> "Choices":
        """Read what the page sent."""
        ratios = {s: math.inf if r == "inf" else r for s, r in given["ratios"].items()}
        return replace(
            self,
            heads=given["heads"],
            ratios=ratios,
            weights=given["weights"],
            others=given["others"],
            off=tuple(given["off"]),
            counts=tuple(given["counts"]),
            text=given["text"],
            page=given["page"],
        )

    def code(self, model: str | None, task: str) -> str:
        """Python that reproduces what is shown; `model` and `task` are expressions."""
        contexts = [*map(self._patch_code, self.patches)]
        if self.off:
            contexts.append(f"cl.ablate_heads(model, {list(self.off)})")
        lines = ["import count01_lens as cl", ""]
        if model is not None:
            lines.append(f"model = {model}")
        lines.append(f"sentence = {self._sentence_code()}")
        indent = "    " if contexts else ""
        if contexts:
            lines.append(f"with {', '.join(contexts)}:")
        said = "model.generate(sentence, max_new_tokens=1, do_sample=False, verbose=False)"
        lines.append(f"{indent}print({said})")
        lines.append(f"{indent}print(cl.accuracy(model, {task}))")
        return "\n".join(lines) + "\n"

    def _patch_code(self, patch: Ratios | Weights) -> str:
        rest = [] if self.heads is None else [f"heads={list(self.heads)}"]
        rest += ['others="keep"'] if self.others == "keep" else []
        if isinstance(patch, Weights):
            return f"cl.set_attention({', '.join(['model', _dictionary(patch.weights), *rest])})"
        given = dict(patch.ratios or {})
        short = ["1", "2"] if self.language.symbols[0] == "0" else []
        written = [
            f"w0{symbol}={_number(given.pop(symbol))}" for symbol in short if symbol in given
        ]
        if given:
            written.append(f"ratios={_dictionary(given)}")
        return f"cl.patch_attention({', '.join(['model', *written, *rest])})"

    def _sentence_code(self) -> str:
        if self.text is not None:
            return json.dumps(self.text.removeprefix("[BOS]").split("=")[0] + "=")
        if sum(self.counts) <= _SHORT:
            return json.dumps(self.sentence)
        pairs = zip(self.language.symbols, self.counts, strict=True)
        parts = [f"{json.dumps(symbol)} * {n}" for symbol, n in pairs if n > 0]
        return " + ".join([*parts, '"="'])


def start_counts(most: Sequence[int], n_ctx: int) -> list[int]:
    """Counts of the sentence at the start, a close call; `startOf` in state.js has the same."""
    counts = [min(n, _START[place % len(_START)]) for place, n in enumerate(most)]
    return counts if sum(counts) + 2 <= n_ctx else [0] * len(counts)


def _number(value: float) -> str:
    return 'float("inf")' if value == math.inf else repr(float(value))


def _dictionary(values: Mapping[str, float]) -> str:
    pairs = (f"{json.dumps(name)}: {_number(value)}" for name, value in values.items())
    return f"{{{', '.join(pairs)}}}"
