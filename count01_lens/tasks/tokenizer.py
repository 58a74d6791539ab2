"""Tokenizers of counting tasks, made in code: a HookedTransformer reads strings offline."""

import re
from typing import Any

from tokenizers import Regex, Tokenizer
from tokenizers.decoders import Fuse
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from transformers import PreTrainedTokenizerFast

from count01_lens.tasks.count01 import Count01
from count01_lens.tasks.counting import BOS, EOS, CountingLanguage
from count01_lens.tasks.counting_task import CountingTask
from count01_lens.tasks.language import split_into_tokens
from count01_lens.tasks.places import COUNT01


class CountingTokenizer(PreTrainedTokenizerFast):  # type: ignore[misc]
    """Tokenizer of a counting task; refuses characters outside it, with their position.

    TransformerLens writes '[BOS]' before the text itself. A '[BOS]' that the user wrote too is
    not doubled.

    Attributes:
        counting_task: the task; None for Count01 with the paper's data.
    """

    counting_task: CountingTask | None = None

    def __call__(self, text: str | list[str] | None = None, *args: Any, **kwargs: Any) -> Any:
        """Tokenize a text or a list of texts."""
        if isinstance(text, str):
            text = self._checked(text)
        elif isinstance(text, list):
            text = [self._checked(item) for item in text]
        return super().__call__(text, *args, **kwargs)

    def _checked(self, text: str) -> str:
        task = self.counting_task
        split_into_tokens(text, (COUNT01 if task is None else task.language).tokens)
        return text[len(BOS) :] if text.startswith(BOS * 2) else text


def counting_tokenizer(task: CountingTask | None = None) -> CountingTokenizer:
    """Make a tokenizer object; nothing is read from disk or from the network."""
    language = COUNT01 if task is None else task.language
    tokenizer = CountingTokenizer(
        tokenizer_object=_backend(language),
        name_or_path=("count01" if task is None else task.name) or "counting task",
        bos_token=BOS,
        eos_token=EOS,
        pad_token=EOS,
    )
    tokenizer.counting_task = None if isinstance(task, Count01) else task
    # TransformerLens reads this key, and without it looks for a variant on a hub. Passed to the
    # constructor it would also make the tokenizer itself write '[BOS]', before one the user wrote.
    tokenizer.init_kwargs["add_bos_token"] = True
    return tokenizer


def count01_tokenizer() -> CountingTokenizer:
    """Make that of Count01."""
    return counting_tokenizer()


def _backend(language: CountingLanguage) -> Tokenizer:
    backend = Tokenizer(WordLevel({text: index for index, text in enumerate(language.tokens)}))
    written = "|".join(map(re.escape, language.tokens))
    backend.pre_tokenizer = Split(Regex(written), "isolated")
    backend.decoder = Fuse()
    return backend
