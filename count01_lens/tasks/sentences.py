"""Sentences of any counting language as token ids."""

from count01_lens.tasks.counting import CountingLanguage
from count01_lens.tasks.language import MalformedSentenceError, split_into_tokens


def encode_sentence(text: str, language: CountingLanguage) -> list[int]:
    """Turn a sentence, at least up to its '=', into token ids, '[BOS]' first.

    Raises:
        MalformedSentenceError: with the text, the position and what was expected there.
    """
    if not isinstance(text, str):
        raise TypeError(f"expected a sentence as a str, got {text!r:.80}")
    tokens, found, position = language.tokens, [0], 0
    for token in split_into_tokens(text, tokens):
        if token != 0 or position > 0:
            allowed = _next(found[-1], language)
            if token not in allowed:
                raise MalformedSentenceError(text, position, _either(allowed, language, found[-1]))
            found.append(token)
        position += len(tokens[token])
    if found[-1] < language.equals:
        raise MalformedSentenceError(text, position, _either(_next(0, language), language, 0))
    return found


def _next(last: int, language: CountingLanguage) -> range:
    """Tokens that may follow one: symbols and '=', then an answer, then '[EOS]', then none."""
    if last < language.equals:
        return range(1, language.equals + 1)
    if last == language.equals:
        return range(language.equals + 1, language.eos)
    return range(language.eos, language.eos if last == language.eos else language.eos + 1)


def _either(allowed: range, language: CountingLanguage, last: int) -> str:
    written = [repr(language.tokens[token]) for token in allowed]
    written += ["the end"] if last >= language.equals else []
    return written[0] if len(written) == 1 else f"{', '.join(written[:-1])} or {written[-1]}"
