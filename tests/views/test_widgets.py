"""The panel without a browser: controls change the session, mistakes become messages."""

import math

import pytest

import count01_lens as cl
from count01_lens.views.patching import PatchSession
from count01_lens.views.widgets import RATIOS
from tests.helpers import TINY, hooks_left

MODEL = cl.example_model()
ANALYSIS = cl.analyze_heads(MODEL, TINY)


@pytest.fixture
def patcher():
    return cl.AttentionPatcher(MODEL, TINY, ANALYSIS)


def test_it_starts_with_the_paper_s_patch(patcher):
    assert patcher.code == 'cl.patch_attention(model, w01=1.0, w02=float("inf"))'
    assert patcher.code.replace('"', "&#34;") in patcher._code.value


def test_sliders_go_from_zero_to_infinity(patcher):
    values = [value for _, value in patcher.w01.options]
    assert values == RATIOS == sorted(RATIOS)
    assert values[0] == 0
    assert values[-1] == math.inf
    assert 1.0 in values
    assert [label for label, _ in patcher.w02.options][-1] == "∞"


def test_every_control_does_something(patcher):
    seen = {patcher.code}
    patcher.w01.value = 2.0
    patcher.w02.value = 0.5
    seen.add(patcher.code)
    patcher.heads_choice.value = (3,)
    seen.add(patcher.code)
    patcher.others.value = "keep"
    seen.add(patcher.code)
    patcher.own_w01.value = True
    assert patcher.w01.disabled
    seen.add(patcher.code)
    assert len(seen) == 5
    assert patcher.code == "cl.patch_attention(model, w02=0.5, heads=[3], others='keep')"
    picture = patcher._outputs.value
    patcher.shown.value = False
    assert patcher._outputs.value != picture
    assert patcher.code.startswith("# the original")
    patcher.sentence.value = "2220="
    assert ">2</span>" in patcher._attention.value


def test_numbers_shown_are_those_of_the_session(patcher):
    patcher.w01.value = 4.0
    table = patcher.session.table
    for row in table.to_dict("records"):
        assert (
            f'"head-{row["head"]}-s_acc-patched">{row["s_acc_patched"]:.4f}' in patcher._heads.value
        )
    expected = PatchSession(MODEL, TINY, ANALYSIS)
    expected.update(w01=4.0, w02=math.inf)
    assert table.equals(expected.table)


def test_mistakes_are_messages_and_the_panel_goes_on(patcher):
    patcher.sentence.value = "01<x>="
    assert "malformed sentence" in patcher.message
    assert "01&lt;x&gt;=" in patcher._message.value
    assert 'role="alert"' in patcher._message.value
    patcher.sentence.value = "01="
    assert patcher.message == patcher._message.value == ""
    patcher.w01.value, patcher.w02.value = 0.0, 0.0
    assert "say nothing about '1' against '2'" in patcher.message
    before = patcher.code
    patcher.w02.value = 1.0
    assert patcher.message == ""
    assert patcher.code != before


def test_circuitsvis_shows_the_same_patch(patcher):
    patcher.heads_choice.value = (2,)
    view = patcher.show_attention()
    _, after = patcher.session.attention()
    assert view.patched[0, -1].tolist() == pytest.approx(after[0].tolist(), abs=1e-6)
    patcher.sentence.value = "  0112=  "
    assert patcher.message == ""
    assert patcher.show_attention().patched.shape[-1] == len("0112=") + 1


def test_the_model_is_left_alone(patcher):
    patcher.w01.value = 3.2
    patcher.show_attention()
    assert hooks_left(MODEL) == 0


def test_it_refuses_what_it_cannot_show():
    with pytest.raises(ValueError, match="expected a HookedTransformer"):
        cl.AttentionPatcher("model")
