"""A tokenizer for the eight tokens, made in code: a HookedTransformer reads strings offline."""

from typing import Any

from tokenizers import Regex, Tokenizer
from tokenizers.decoders import Fuse
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from transformers import PreTrainedTokenizerFast

from count01_lens.tasks.language import TOKENS, Token, split_into_tokens


class Count01Tokenizer(PreTrainedTokenizerFast):  # type: ignore[misc]
    """Tokenizer of the Count01 language; refuses characters outside it, with their position.

    TransformerLens writes '[BOS]' before the text itself. A '[BOS]' that the user wrote too is
    not doubled.
    """

    def __call__(self, text: str | list[str] | None = None, *args: Any, **kwargs: Any) -> Any:
        """Tokenize a text or a list of texts."""
        if isinstance(text, str):
            text = _checked(text)
        elif isinstance(text, list):
            text = [_checked(item) for item in text]
        return super().__call__(text, *args, **kwargs)


def count01_tokenizer() -> Count01Tokenizer:
    """Make a tokenizer object; nothing is read from disk or from the network."""
    tokenizer = Count01Tokenizer(
        tokenizer_object=_backend(),
        name_or_path="count01",
        bos_token=Token.BOS.text,
        eos_token=Token.EOS.text,
        pad_token=Token.EOS.text,
    )
    # TransformerLens reads this key, and without it looks for a variant on a hub. Passed to the
    # constructor it would also make the tokenizer itself write '[BOS]', before one the user wrote.
    tokenizer.init_kwargs["add_bos_token"] = True
    return tokenizer


def _backend() -> Tokenizer:
    backend = Tokenizer(WordLevel({text: index for index, text in enumerate(TOKENS)}))
    backend.pre_tokenizer = Split(Regex("."), "isolated")
    backend.decoder = Fuse()
    return backend


def _checked(text: str) -> str:
    split_into_tokens(text)
    doubled = Token.BOS.text * 2
    return text[len(Token.BOS.text) :] if text.startswith(doubled) else text
