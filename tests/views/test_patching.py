"""The state behind the panel against the library's own functions, and its drawings."""

import io
import math
import re

import numpy as np
import pytest
import torch
from PIL import Image

import count01_lens as cl
from count01_lens.heads.runners import model_logits
from count01_lens.views import patch_views
from count01_lens.views.output_tiles import OutputTile, draw_tiles, tiles_figure
from count01_lens.views.patching import PatchSession
from tests.helpers import TINY

MODEL = cl.example_model()
ANALYSIS = cl.analyze_heads(MODEL, TINY)


@pytest.fixture
def session():
    return PatchSession(MODEL, TINY, ANALYSIS)


PATCHES = [
    dict(w01=1.0, w02=math.inf),
    dict(w01=None, w02=3.0, heads=[2, 9], others="keep"),
    dict(w01=0.0, w02=None, heads="failed"),
    dict(w01=0.5, w02=2.0, heads=[15]),
]


@pytest.mark.parametrize("patch", PATCHES)
def test_numbers_are_those_of_the_code_that_is_shown(session, patch):
    """Run `session.code` itself on sequences, and measure by hand."""
    session.update(**patch)
    call = session.code
    assert call.startswith("cl.patch_attention(model")
    with eval(call, {"cl": cl, "model": MODEL}):
        train, test = (cl.head_outputs(MODEL, s).double().numpy() for s in (TINY.train, TINY.test))
        shares = cl.head_logits(MODEL, TINY.test)
        logits = model_logits(MODEL, TINY.test)
    bias = (logits - shares.sum(dim=1))[0]
    table = session.table
    assert table["head"].tolist() == session.heads
    for head, row in zip(session.heads, table.to_dict("records"), strict=True):
        probe = cl.LinearSVM().fit(train[:, head], TINY.train.labels.numpy())
        expected = probe.score(test[:, head], TINY.test.labels.numpy())
        assert row["s_acc_patched"] == pytest.approx(expected, abs=0.013)
        alone = shares[:, head] + bias
        says_four = alone[:, cl.Token.FOUR] > alone[:, cl.Token.FIVE]
        expected = float((says_four == TINY.test.labels).double().mean())
        assert row["l_acc_patched"] == pytest.approx(expected)
    assert table["s_acc"].tolist() == ANALYSIS.table["s_acc"].iloc[session.heads].tolist()
    right = (logits[:, 5] > logits[:, 6]) == TINY.test.labels
    accuracy = session.accuracy.loc["patched"]
    assert accuracy["answer"] == pytest.approx(float(right.double().mean()))
    ties = TINY.test.ties
    assert accuracy["others"] == pytest.approx(float(right[~ties].double().mean()))
    assert accuracy["end"] == ANALYSIS.accuracy["end"]
    assert session.accuracy.loc["original"].to_dict() == pytest.approx(
        ANALYSIS.accuracy, nan_ok=True
    )


@pytest.mark.parametrize("patch", PATCHES)
def test_attention_of_the_sentence_is_that_of_the_model(session, patch):
    session.update(**patch, sentence="01120=")
    before, after = session.attention()
    tokens = torch.tensor([cl.encode("01120=")])
    pattern = lambda: MODEL.run_with_cache(tokens)[1]["blocks.0.attn.hook_pattern"][0, :, -1]  # noqa: E731
    np.testing.assert_allclose(before, pattern()[session.heads].numpy(), atol=1e-6)
    with eval(session.code, {"cl": cl, "model": MODEL}):
        np.testing.assert_allclose(after, pattern()[session.heads].numpy(), atol=1e-6)
        logits = MODEL(tokens)[0, -1].detach()
    said = session.answers()["patched"]
    assert said.margin == pytest.approx(float(logits[5] - logits[6]), abs=1e-3)
    assert said.right == (said.answer == "5")


def test_the_read_out_of_a_patched_head_decides_as_its_separator(session):
    session.update(w01=2.0, w02=5.0, heads=[3])
    before, after = session.readout(3)
    assert before == ANALYSIS.table["readout"][3]
    numbers = dict.fromkeys(("n0", "n1", "n2", ""), 0.0)
    text = after.removesuffix(" > 0").replace("− ", "−").replace("+ ", "+")
    for sign, size, name in re.findall(r"([−+]?)([\d.]*)·?(n\d)?", text):
        if size or name:
            numbers[name] = (-1 if sign == "−" else 1) * float(size or 1)
    n0, n1, n2 = TINY.test.counts.double().unbind(1)
    decided = numbers["n0"] * n0 + numbers["n1"] * n1 + numbers["n2"] * n2 + numbers[""] > 0
    agreement = (decided.numpy() == TINY.test.labels.numpy()).mean()
    assert agreement == pytest.approx(session.table["s_acc_patched"][0], abs=0.05)
    session.update(others="keep")
    assert "keep weights" in session.readout(3)[1]


def test_categories_choose_heads(session):
    for kind in ("successful", "failed"):
        session.update(heads=kind)
        assert (ANALYSIS.table["category"].iloc[session.heads] == kind).all()
    minimal = PatchSession(cl.minimal_model(), TINY)
    with pytest.raises(ValueError, match="this model has no failed head"):
        minimal.update(heads="failed")


def test_the_original_is_shown_when_asked_for(session):
    session.update(w01=7.0, patched=False)
    assert session.code == "# the original model: nothing is patched"
    shown = patch_views.heads_html(session)
    assert "linear probe over counts, original" in shown
    session.update(patched=True)
    assert session.code == "cl.patch_attention(model, w01=7.0)"
    session.reset()
    assert session.code == "cl.patch_attention(model)"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(w01=-1.0), "w01: expected"),
        (dict(w01=0.0, w02=0.0), "say nothing about"),
        (dict(heads=[99]), "there is no head 99"),
        (dict(heads="best"), "heads: expected 'all', one of"),
        (dict(sentence="0110"), "malformed sentence"),
        (dict(sentence="0" * 3000 + "="), "the model reads"),
        (dict(sentence=5), "sentence: expected text"),
        (dict(others="drop"), "others: expected"),
    ],
)
def test_bad_input_changes_nothing(session, changes, message):
    session.update(w01=2.0)
    before = session.chosen
    with pytest.raises(ValueError, match=message):
        session.update(**changes)
    assert session.chosen == before
    assert len(session.table) == 16


def test_the_data_set_is_that_of_the_analysis():
    session = PatchSession(MODEL, analysis=ANALYSIS)
    assert session.task.splits is TINY
    with pytest.raises(ValueError, match="splits: expected the data set of the analysis"):
        PatchSession(MODEL, cl.make_splits(1), ANALYSIS)
    with pytest.raises(ValueError, match="model: expected the model that was analysed"):
        PatchSession(cl.build_model(), TINY, ANALYSIS)


def test_models_that_counts_do_not_describe_are_refused():
    model = cl.build_model(seed=0)
    with torch.no_grad():
        model.pos_embed.W_pos += 1
    with pytest.raises(ValueError, match="positional embedding W_pos is not zero"):
        PatchSession(model, TINY)


def test_views_carry_their_numbers(session):
    session.update(w01=2.0, heads=[1, 4], sentence="0" * 30 + "1" * 40 + "2=")
    page = patch_views.heads_html(session) + patch_views.accuracy_html(session)
    for row in session.table.to_dict("records"):
        cell = f'data-count01="head-{row["head"]}-s_acc-patched">{row["s_acc_patched"]:.4f}<'
        assert cell in page
    assert f'"model-patched-answer">{session.accuracy["answer"]["patched"]:.4f}<' in page
    strips = patch_views.attention_html(session)
    assert "0 ×30" in strips
    assert "1 ×40" in strips
    assert session.code in patch_views.code_html(session)


def test_messages_are_escaped():
    assert patch_views.message_html("") == ""
    assert "&lt;script&gt;" in patch_views.message_html("<script>")


def test_pictures_show_what_is_chosen(session):
    sizes = []
    for heads in ([2], [2, 3], "all"):
        session.update(heads=heads)
        sizes.append(Image.open(io.BytesIO(patch_views.outputs_picture(session))).size)
    assert sizes[2][1] > 3 * sizes[2][0] / 4
    session.update(heads=[2])
    patched = patch_views.outputs_picture(session)
    session.update(patched=False)
    assert patch_views.outputs_picture(session) != patched
    assert 'alt="original head outputs' in patch_views.outputs_html(session)


def tile(**changes) -> OutputTile:
    rng = np.random.default_rng(0)
    outputs = rng.normal(size=(50, changes.pop("d_head", 2)))
    values = dict(
        title="head", outputs=outputs, labels=outputs[:, 0] > 0,
        values=np.zeros((3, outputs.shape[1])), weights=np.eye(outputs.shape[1])[0], bias=0.0,
    )  # fmt: skip
    return OutputTile(**(values | changes))


@pytest.mark.parametrize("d_head", [1, 2, 5])
def test_lines_of_probes_part_the_points_they_should(d_head):
    figure = tiles_figure([tile(d_head=d_head)])
    (axes,) = figure.axes
    clouds = {line.get_color(): np.asarray(line.get_xydata()) for line in axes.lines}
    (segment,) = axes.collections[0].get_segments()
    (x, y), (x2, y2) = segment
    normal = np.array([-(y2 - y), x2 - x])
    sides = [((clouds[c] - [x, y]) @ normal) > 0 for c in ("#0072B2", "#D55E00")]
    if d_head <= 2:
        assert sides[0].all() != sides[1].all()
        assert sides[0].any() != sides[1].any()


def test_a_collapsed_head_and_value_vectors_in_one_place_can_be_drawn():
    same = np.ones((50, 2))
    far = np.array([[9.0, 9.0], [9.0, 9.0], [9.1, 9.0]])
    labels = np.arange(50) > 20
    one = OutputTile("collapsed", same, labels, far, np.zeros(2), 1.0)
    figure = tiles_figure([one])
    places = np.array(
        [text.get_position() for text in figure.axes[0].texts if text.get_text() in "012"]
    )
    assert len(np.unique(places.round(6), axis=0)) == 3
    assert draw_tiles([one]) == draw_tiles([one])
    assert Image.open(io.BytesIO(draw_tiles([one]))).format == "PNG"
