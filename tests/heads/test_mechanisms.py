"""What the heads of an analysis do, and how many ignore something in which way."""

import dataclasses

import numpy as np

import count01_lens as cl
from count01_lens.counts.mechanism import Mechanism
from count01_lens.counts.readout import CountReadout
from count01_lens.heads.mechanisms import mechanisms, ways_in_words
from tests.helpers import TINY


def test_the_two_examples_ignore_2_in_two_ways():
    shares = {}
    for name in ("accurate", "paper"):
        analysis = cl.analyze_heads(cl.example_model(name))
        found = mechanisms(analysis)
        assert [each.failed for each in found] == list(analysis.table["category"] == "failed")
        # What is described is the read-out that the table shows.
        assert [str(each.readout) for each in found] == list(analysis.table["readout"])
        good = analysis.table["category"] == "successful"
        shares[name] = [
            each.ignored.get(2) for each, is_good in zip(found, good, strict=True) if is_good
        ]
    assert set(shares["accurate"]) == {"value"}
    assert (
        shares["paper"].count("attention") + shares["paper"].count("both")
        > len(shares["paper"]) / 2
    )


def test_ways_are_counted_in_a_sentence():
    def head(score, value):
        scores, values = [-9.0, 0, 0, score, -9], [0.1, -1, 1, value, 0.1]
        return Mechanism(CountReadout(np.array(scores), np.array(values)))

    by_attention, by_value, neither = head(-9, 1), head(0, 1e-4), head(0, 0.5)
    both, yes = head(-3, 0.05), [True, True]
    assert ways_in_words([by_value, by_value], yes) == "All 2 successful heads ignore '2' by value."
    assert ways_in_words([by_value, both], [False, True]) == (
        "The successful head ignores '2' by both together."
    )
    assert ways_in_words([by_value, by_attention], yes) == (
        "Of 2 successful heads, 2 ignore '2': 1 by attention and 1 by value."
    )
    assert ways_in_words([by_value, neither], yes) == (
        "Of 2 successful heads, 1 ignores '2': 1 by value."
    )
    assert ways_in_words([neither], [True]) == ""
    assert ways_in_words([by_value], [False]) == ""
    assert ways_in_words((), ()) == ""


def test_without_counts_a_linear_probe_or_a_model_nothing_is_said(tmp_path):
    from sklearn.tree import DecisionTreeClassifier

    model = cl.cooperative_model()
    analysis = cl.analyze_heads(model, TINY)
    analysis.save(tmp_path / "analysis.safetensors")
    loaded = cl.HeadAnalysis.load(tmp_path / "analysis.safetensors")
    assert mechanisms(loaded) == ()
    assert list(map(str, mechanisms(loaded, model))) == list(map(str, mechanisms(analysis)))
    assert all(isinstance(each, Mechanism) for each in mechanisms(analysis))
    tree = cl.analyze_heads(model, TINY, probe=DecisionTreeClassifier(max_depth=2, random_state=0))
    assert mechanisms(tree) == ()
    assert mechanisms(dataclasses.replace(analysis, counts=None)) == ()
