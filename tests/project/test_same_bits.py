"""What the library computes is what was stored: to the bit where it was stored, else to rounding."""

import copy

import pytest

from experiments.tools import same_bits

STORED = same_bits.read()


@pytest.mark.parametrize(
    "part",
    [
        "example",
        pytest.param("groups", marks=pytest.mark.slow),
        pytest.param("training", marks=pytest.mark.slow),
    ],
)
def test_values_are_those_that_were_stored(part):
    exact = STORED["made_with"] == same_bits.here()
    assert same_bits.differences(part, STORED, exact=exact) == []


def test_a_changed_bit_is_named(monkeypatch):
    found = {"a": ["0x1.0000000000001p+0"], "a.sha256": "12", "b": 3, "only here": 1}
    monkeypatch.setitem(same_bits.PARTS, "example", lambda: copy.deepcopy(found))
    stored = {"example": {"a": ["0x1.0000000000000p+0"], "a.sha256": "34", "b": 3, "gone": 1}}
    lost = ["gone", "only here"]
    assert same_bits.differences("example", stored, exact=True) == ["a", "a.sha256", *lost]
    assert same_bits.differences("example", stored, exact=False) == lost
    stored["example"]["a"] = ["0x1.1000000000000p+0"]
    assert same_bits.differences("example", stored, exact=False) == ["a", *lost]


def test_another_processor_is_held_to_the_beginning_of_a_training(monkeypatch):
    history = [value.hex() for value in (0.5, 0.6, 0.7, 0.8, 0.9)]
    later = [*history[:-1], (0.1).hex()]
    early = [(0.4).hex(), *history[1:]]
    stored = {"training": {"history.loss": history}}
    for found, different in ((later, []), (early, ["history.loss"])):
        monkeypatch.setitem(same_bits.PARTS, "training", lambda h=found: {"history.loss": h})
        assert same_bits.differences("training", stored, exact=False) == different
        assert same_bits.differences("training", stored, exact=True) == ["history.loss"]
