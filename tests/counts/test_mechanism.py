"""What heads do, in sentences: heads whose tables were set by hand, and models with known ways."""

import math
import warnings

import numpy as np
import pytest

import count01_lens as cl
from count01_lens.counts.choice_readout import ChoiceReadout
from count01_lens.counts.mechanism import Mechanism, attention_share, lead_of, way_of
from count01_lens.counts.readout import CountReadout
from count01_lens.tasks.counting_tasks import counting_task

INF = math.inf
MOST_FREQUENT = counting_task("most_frequent").language


def said(scores, values, *, ends=(-30.0, -30.0), failed=False):
    """What is said of a head on '0', '1' and '2', by attention scores and values along its probe."""
    scores = np.array([ends[0], *scores, ends[1]], dtype=float)
    return str(Mechanism(CountReadout(scores, np.array([0.1, *values, -0.1])), failed))


@pytest.fixture(autouse=True)
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.parametrize(
    ("scores", "values", "expected"),
    [
        # '2' gets 92 times less attention, its value speaks as loudly.
        ((0, 0, -math.log(92)), (-1, 1, 1), "compares 1s with 0s; ignores '2' by attention (w02 = 92)"),
        # As much attention, and a value on the separator.
        (
            (0, 0, 0),
            (-1, 1, 0),
            "compares 1s with 0s; attends to '2' about as much as to '0' (w02 = 1), but the value "
            "of '2' adds almost nothing along the probe",
        ),
        ((0, 0, 2), (-1, 1, 1e-5), "attends to '2' more than to '0' (w02 = 0.14), but the value of"),
        ((0, 0, -2), (-1, 1, 1e-5), "attends to '2' less than to '0' (w02 = 7.4), but the value of"),
        # e^-3 of the attention, and a value e^-3 times as large.
        ((3, 3, 0), (-1, 1, math.exp(-3)), "ignores '2' partly by attention (w02 = 20), partly by value"),
        # Not ignored: it adds a tenth, on the side of '0'.
        ((0, 0, 0), (-1, 1, -0.1), "compares 1s with 0s; a '2' counts as 0.1 of a '0'"),
        ((0, 0, 0), (-1, 1, 0.1), "compares 1s with 0s; a '2' counts as 0.1 of a '1'"),
        # On the other side than all that count most, it is measured in the first of them.
        ((0, 0, 0), (-1, -2, 0.1), "a '2' counts as −0.1 of a '0'"),
        # What adds as much as others is counted, whichever side it is on.
        ((0, 0, 0), (-1, 1, -1), "compares 1s with 0s and 2s"),
        ((0, 0, 0), (-2, 1, 0), "compares 1s with 0s (a '0' weighs 2 times as much as a '1'); attends"),
        ((0, 0, -20), (-1, -1, 1), "counts 0s and 1s together; ignores '2' by attention"),
        # Attention makes up for a value: together they count.
        ((math.log(3), 0, -20), (-1, 3, 1), "compares 1s with 0s; ignores '2' by attention"),
        # One symbol alone.
        ((-20, -20, 0), (-1, 1, 1), "counts only 2s"),
        ((0, 0, 0), (0, 0, 0), "never '4', whatever the counts"),
    ],
)  # fmt: skip
def test_a_head_is_said_to_do_what_its_tables_do(scores, values, expected):
    text = said(scores, values)
    assert text.startswith(expected) or expected in text.split("; ", 1)[1]
    # All scores shifted, or all values scaled, change nothing.
    ends = (-23.0, -23.0)
    assert said([score + 7 for score in scores], values, ends=ends) == text
    scaled = CountReadout(np.array([-30, *scores, -30.0]), 5 * np.array([0.1, *values, -0.1]))
    assert str(Mechanism(scaled)) == text


def test_a_failed_head_that_attends_to_one_symbol_follows_it_or_nothing():
    # Probes of such heads fit the little there is; what is said is of attention.
    scores, values = (-6, -6, 0), (-1, 1, 1e-6)
    saturated = (
        "among symbols, attends almost only to '2', at least 400 times as much as to any other "
        "symbol: with enough 2s, its output hardly depends on any count"
    )
    assert said(scores, values, failed=True) == saturated
    # Beside '=', the more 2s there are, the less of '=' is left. But hundreds of 0s count, too.
    assert said(scores, values, ends=(-30, -1), failed=True) == saturated
    alone = said((-13, -13, 0), values, ends=(-30, -1), failed=True)
    assert alone.startswith("counts only 2s: attends to '2', at least ")
    assert alone.endswith(" times as much as to any other symbol")
    assert said(scores, values).startswith("compares 1s with 0s")
    just = said((-math.log(51), -9, 0), values, failed=True)
    assert just.startswith("among symbols, attends almost only to '2'")
    assert "almost only" not in said((-math.log(49), -9, 0), values, failed=True)
    far = said(scores, values, ends=(-30, 5), failed=True)
    assert far.startswith("counts only 2s: ")  # next to '=', even hundreds of 0s get nothing
    assert far.endswith("; attends to '=' as much as to 150 2s")


@pytest.mark.parametrize(("ends", "counts_only"), [((-30.0, -1.0), True), ((-30.0, -2.0), False)])
def test_a_head_that_counts_only_one_symbol_hardly_feels_hundreds_of_the_others(ends, counts_only):
    """The attention of a sentence itself: what 200 tokens of each other symbol change."""
    scores = (-12.6, -12.6, 0)
    assert ("counts only 2s" in said(scores, (-1, 1, 1), ends=ends, failed=True)) == counts_only
    if counts_only:
        of_ends = np.exp(ends).sum()
        shares = [20 / (20 + of_ends + others * math.exp(scores[0])) for others in (0, 400)]
        assert shares[0] == pytest.approx(shares[1], rel=0.001)


def test_attention_to_the_ends_is_told_where_it_is_that_of_many_symbols():
    assert said((0, 0, -9), (-1, 1, 1), ends=(math.log(200), 0)).endswith(
        "; attends to '[BOS]' as much as to 200 0s"
    )
    assert said((0, 0, -9), (-1, 1, 1), ends=(0, 99)).endswith("; attends almost only to '='")
    assert "[BOS]" not in said((0, 0, -9), (-1, 1, 1), ends=(3, 3))


def test_scores_and_values_beyond_any_number():
    assert (
        said((0, 0, -INF), (-1, 1, 1)) == "compares 1s with 0s; ignores '2' by attention (w02 = ∞)"
    )
    text = said((0, -1e6, 1e6), (-1, 1, 0))
    assert "2" in text
    assert "nan" not in text
    assert said((0, 0, 0), (-1e300, 1e300, 1e-300)).startswith(
        "compares 1s with 0s; attends to '2'"
    )


def test_ratios_that_tell_how_the_first_symbol_is_ignored():
    text = said((-10, 0, -10), (-1, 1, 1))
    assert text == "counts only 1s; ignores '0' and '2' by attention (w01 = 4.5·10⁻⁵, w02 = 1)"
    assert "'0' by attention (w01 = 4.5·10⁻⁵, w02 = 4.5·10⁻⁵)" in said((-10, 0, 0), (-1, 1, -1))


def test_what_is_counted_beside_one_symbol_takes_the_word_only_away():
    assert said((0, 0, -20), (-1, 0.1, 1)).startswith("counts mainly 0s; a '1' counts as −0.1 of a")


def test_a_symbol_of_an_answer_of_its_own_takes_nothing_from_others():
    n = len(MOST_FREQUENT.symbols)
    values = np.eye(n, n + 2, 1)
    values[-1] *= 0.2
    text = str(Mechanism(ChoiceReadout(np.zeros(n + 2), values, MOST_FREQUENT)))
    first, last = MOST_FREQUENT.symbols[0], MOST_FREQUENT.symbols[-1]
    answers = MOST_FREQUENT.answers[-1], MOST_FREQUENT.answers[0]
    expected = f"a '{last}' counts for '{answers[0]}', 0.2 times as much as a '{first}' for "
    assert f"{expected}'{answers[1]}'" in text


def test_several_answers_are_compared():
    symbols, answers = MOST_FREQUENT.symbols, MOST_FREQUENT.answers
    n = len(symbols)
    scores, values = np.array([-30.0, *np.zeros(n), -30]), np.eye(n, n + 2, 1)
    text = str(Mechanism(ChoiceReadout(scores, values, MOST_FREQUENT)))
    pro = ", ".join(f"'{s}' for '{a}'" for s, a in zip(symbols, answers, strict=True))
    assert text.startswith(f"compares '{symbols[0]}'s, ")
    assert text.endswith(f"({pro})")
    # What is added to all answers alike says nothing.
    assert str(Mechanism(ChoiceReadout(scores, values + 3, MOST_FREQUENT))) == text
    # Without attention to the last symbol, the others are left.
    scores[n] = -9
    text = str(Mechanism(ChoiceReadout(scores, values, MOST_FREQUENT)))
    assert f"ignores '{symbols[-1]}' by attention" in text
    assert f"'{symbols[-1]}' for" not in text


@pytest.mark.parametrize(
    ("model", "beginnings"),
    [
        (cl.minimal_model, ["compares 1s with 0s; ignores '2' by attention"]),
        (cl.cooperative_model, ["counts only 0s: ", "counts only 1s: "]),
        (
            lambda: cl.ensemble_model(n_heads=2),
            ["compares 1s with 0s; ignores '2' by attention"] * 2,
        ),
    ],
)
def test_models_whose_ways_are_known(model, beginnings):
    from count01_lens.heads.mechanisms import mechanisms

    found = mechanisms(cl.analyze_heads(model()))
    for each, beginning in zip(found, beginnings, strict=True):
        assert str(each).startswith(beginning)


def test_shares_of_attention():
    assert (attention_share(2, 6), attention_share(INF, 3), attention_share(3, INF)) == (0.25, 1, 0)
    assert math.isnan(attention_share(0, 0))
    assert math.isnan(attention_share(INF, INF))
    assert [way_of(3, 1), way_of(1, 3), way_of(2, 1.5), way_of(0, 0), way_of(INF, INF)] == [
        "attention", "value", "both", "both", "both",
    ]  # fmt: skip
    logs = np.array([4.0, 2.0, 0.0, -INF])
    assert lead_of(logs, (0, 1), 2) == 3
    assert lead_of(logs, (2,), 0) == 0
    assert lead_of(logs, (0, 3), 3) == 0
    assert lead_of(logs, (0, 1), 3) == INF
