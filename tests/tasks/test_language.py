import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from count01_lens.tasks.language import (
    TOKENS,
    MalformedSentenceError,
    Sentence,
    SentenceError,
    Token,
    WrongAnswerError,
    decode,
    encode,
    parse,
    right_answer,
    split_into_tokens,
    validate,
)

bodies = st.text("012", max_size=30)


def test_vocabulary_is_in_the_order_of_appendix_a():
    assert TOKENS == ("[BOS]", "0", "1", "2", "=", "4", "5", "[EOS]")
    assert [token.text for token in Token] == list(TOKENS)


@pytest.mark.parametrize(
    ("n0", "n1", "answer"), [(0, 0, "5"), (0, 1, "4"), (1, 0, "5"), (7, 7, "5"), (99, 100, "4")]
)
def test_right_answer(n0, n1, answer):
    assert right_answer(n0, n1) == answer


@pytest.mark.parametrize(
    ("text", "counts", "answer", "ended"),
    [
        ("0110=5", (2, 2, 0), "5", False),
        ("[BOS]0110=5[EOS]", (2, 2, 0), "5", True),
        ("[BOS]=", (0, 0, 0), None, False),
        ("=", (0, 0, 0), None, False),
        ("212=4[EOS]", (0, 1, 2), "4", True),
        ("11=5", (0, 2, 0), "5", False),
    ],
)
def test_parse(text, counts, answer, ended):
    sentence = parse(text)
    assert (sentence.counts, sentence.answer, sentence.ended) == (counts, answer, ended)


@pytest.mark.parametrize(
    ("text", "position", "expected"),
    [
        ("", 0, "'0', '1', '2' or '='"),
        ("0110", 4, "'0', '1', '2' or '='"),
        ("01x0=5", 2, "'0', '1', '2' or '='"),
        ("0 1=5", 1, "'0', '1', '2' or '='"),
        ("014=5", 2, "'0', '1', '2' or '='"),
        ("01==5", 3, "'4', '5' or the end"),
        ("01=0", 3, "'4', '5' or the end"),
        ("01=[EOS]", 3, "'4', '5' or the end"),
        ("01=55", 4, "'[EOS]' or the end"),
        ("01=5[EOS]0", 9, "the end"),
        ("0[BOS]1=5", 1, "'0', '1', '2' or '='"),
    ],
)
def test_a_malformed_sentence_is_shown_with_position_and_expectation(text, position, expected):
    with pytest.raises(MalformedSentenceError) as caught:
        parse(text)
    error = caught.value
    assert (error.position, error.expected) == (position, expected)
    first, shown, caret = str(error).split("\n")
    assert f"position {position}" in first
    assert expected in first
    assert shown.strip() == text
    assert caret.index("^") - 4 == position


def test_the_caret_is_right_in_a_long_sentence_with_control_characters():
    text = "0" * 500 + "\t\n" + "1" * 500
    with pytest.raises(MalformedSentenceError) as caught:
        parse(text)
    _, shown, caret = str(caught.value).split("\n")
    assert len(shown) < 80
    assert shown[caret.index("^")] == "·"
    assert shown[caret.index("^") - 1] == "0"


def test_a_wrong_answer_is_told_apart_from_a_malformed_sentence():
    with pytest.raises(WrongAnswerError, match=r"expected '4' .*got '5'") as caught:
        validate("0111=5")
    assert not isinstance(caught.value, MalformedSentenceError)
    with pytest.raises(MalformedSentenceError, match="expected '4' or '5', got the end"):
        validate("01=")
    assert validate("0111=4").answer == "4"


@given(bodies)
def test_validate_accepts_the_right_answer_and_no_other(body):
    answer = "4" if body.count("1") > body.count("0") else "5"
    other = "5" if answer == "4" else "4"
    assert validate(f"[BOS]{body}={answer}[EOS]").right_answer == answer
    with pytest.raises(WrongAnswerError):
        validate(f"{body}={other}")


@given(bodies, st.sampled_from(["", "4", "5", "4[EOS]", "5[EOS]"]))
def test_encode_and_decode_are_inverse(body, ending):
    text = f"[BOS]{body}={ending}"
    assert decode(encode(text)) == text
    assert encode(text.removeprefix("[BOS]")) == encode(text)


@given(st.lists(st.sampled_from(list(Token)), max_size=20))
def test_any_tokens_can_be_cut_again(tokens):
    assert split_into_tokens(decode(tokens)) == tokens


@given(st.text(max_size=20))
def test_parse_gives_a_sentence_or_its_own_error(text):
    try:
        sentence = parse(text)
    except MalformedSentenceError as error:
        assert 0 <= error.position <= len(text)
    else:
        assert str(sentence) == text.removeprefix("[BOS]").removesuffix("[EOS]")


def test_bad_input():
    with pytest.raises(TypeError, match="expected a sentence as a str"):
        parse(5)
    with pytest.raises(ValueError, match="token 8 at position 1"):
        decode([0, 8])


def test_errors_survive_pickling_as_between_processes():
    for text in ("01x", "0111=5"):
        with pytest.raises(SentenceError) as caught:
            validate(text)
        again = pickle.loads(pickle.dumps(caught.value))
        assert type(again) is type(caught.value)
        assert str(again) == str(caught.value)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: decode([1.7]), TypeError, "token 1.7 at position 0: expected a whole number"),
        (lambda: decode("0123"), TypeError, "expected token ids"),
        (lambda: decode(None), TypeError, "expected token ids"),
        (lambda: right_answer("a", "b"), ValueError, "n0: expected a whole number"),
        (lambda: right_answer(3, -1), ValueError, "n1: expected a whole number"),
        (lambda: right_answer(3, True), ValueError, "n1: expected a whole number"),
        (lambda: right_answer(2.0, 3), ValueError, "n0: expected a whole number"),
        (lambda: Sentence("01"), ValueError, "body: expected tokens"),
        (lambda: Sentence((Token.FOUR,)), ValueError, "body: expected tokens"),
        (lambda: Sentence((), None, True), ValueError, "answer: expected"),
        (lambda: Sentence((), "6"), ValueError, "answer: expected"),
    ],
)
def test_more_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_sentences_are_written_as_people_write_them():
    assert str(parse("[BOS]0120=5[EOS]")) == "0120=5"
    assert str(parse("=")) == "="


def test_messages_word_for_word():
    """What people read when something is wrong is part of the product."""
    long = "0" * 100
    for text, message in {
        "01": "position 2: expected '0', '1', '2' or '=', got the end\n    01\n      ^",
        "0[EOS]": "position 1: expected '0', '1', '2' or '=', got '[EOS]'\n    0[EOS]\n     ^",
        "0x=4": "position 1: expected '0', '1', '2' or '=', got 'x'\n    0x=4\n     ^",
        f"{long}x{long}": "position 100: expected '0', '1', '2' or '=', got 'x'\n"
        f"    …{'0' * 30}x{'0' * 29}…\n     {' ' * 30}^",
        "x" + "0" * 59: "position 0: expected '0', '1', '2' or '=', got 'x'\n"
        f"    x{'0' * 59}\n    ^",
        "0" * 31: "position 31: expected '0', '1', '2' or '=', got the end\n"
        f"    …{'0' * 30}\n     {' ' * 30}^",
    }.items():
        with pytest.raises(MalformedSentenceError) as caught:
            parse(text)
        assert str(caught.value).endswith(message), text
    for text, message in {
        "01=4": "expected '5' (1 ones, 1 zeros: no more 1s than 0s), got '4' in '01=4'",
        "1=5": "expected '4' (1 ones, 0 zeros: more 1s than 0s), got '5' in '1=5'",
        f"{'0' * 58}=4": f"(0 ones, 58 zeros: no more 1s than 0s), got '4' in '{'0' * 58}=4'",
        f"{'0' * 59}=4": f"got '4' in '{'0' * 30}…{'0' * 28}=4'",
    }.items():
        with pytest.raises(WrongAnswerError) as caught:
            validate(text)
        assert str(caught.value).endswith(message), text
    with pytest.raises(
        ValueError, match="^token 8 at position 2 is not in the vocabulary: expe.* 0 to 7$"
    ):
        decode([0, 1, 8])
    with pytest.raises(MalformedSentenceError) as caught:
        split_into_tokens("01[BOS]4!")
    expected = "position 8: expected one of [BOS] 0 1 2 = 4 5 [EOS], got '!'\n    01[BOS]4!\n"
    assert str(caught.value).endswith(f"{expected}            ^")
