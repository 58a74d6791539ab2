"""An analysis knows what it was made from, and is never shown beside anything else."""

import numpy as np
import pytest
import torch

import count01_lens as cl
from count01_lens.models.hooks import hooks_attached
from count01_lens.views.plots import plot_head_outputs
from tests.helpers import deep_model, two_layers

FEW = cl.make_splits(
    0,
    train=cl.SplitSpec(size=40, zeros_and_ones=(0, 5), twos=(0, 3)),
    test=cl.SplitSpec(size=12, zeros_and_ones=(0, 5), twos=(0, 3)),
)


def deep():
    return deep_model(normalization_type="LN", n_heads=1)


@pytest.fixture(scope="module")
def analysed():
    model = cl.build_model(cl.ModelConfig(d_embed=6, n_heads=3), seed=1)
    return model, cl.analyze_heads(model, FEW)


@pytest.fixture
def model(analysed):
    """The analysed model, put back after each test."""
    model = analysed[0]
    state = {name: value.clone() for name, value in model.state_dict().items()}
    yield model
    model.load_state_dict(state)


@pytest.mark.parametrize("at", ["=", "answer"])
@pytest.mark.parametrize(
    "make", [lambda: cl.build_model(cl.ModelConfig(d_embed=6, n_heads=3)), deep]
)
def test_groups_of_a_patched_model_need_its_patch(make, at):
    model = make()
    with cl.patch_attention(model, w01=0.1, w02=5.0, at=at):
        inside = cl.analyze_heads(model, FEW)
        expected = inside.groups(progress=False)
        later = cl.analyze_heads(model, FEW)
    with pytest.raises(ValueError, match="hooks were attached to it or taken off since.*`with`"):
        later.groups(progress=False)
    with pytest.raises(ValueError, match="hooks were attached to it or taken off since"):
        later.sampled_shapley("l_acc", n_permutations=2)
    with cl.patch_attention(model, w01=0.1, w02=5.0, at=at):
        again = later.groups(progress=False)
    assert again.equals(expected)


def test_a_patch_that_came_later_is_noticed(analysed, model, tmp_path):
    analysis = analysed[1]
    with (
        cl.patch_attention(model, w01=0.1, w02=5.0, at="answer"),
        pytest.raises(ValueError, match="other logits or head outputs for 'end': hooks"),
    ):
        analysis.report(tmp_path / "report.html")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["W_E", "W_U", "b_U", "b_O"])
def test_weights_that_were_changed_are_noticed(analysed, model, name, tmp_path):
    analysis = analysed[1]
    weights = model.blocks[0].attn.b_O if name == "b_O" else getattr(model, name)
    weights.data.add_(0.01)
    message = "model: expected the model that was analysed, got one with other weights"
    with pytest.raises(ValueError, match=message):
        analysis.report(tmp_path / "report.html")
    with pytest.raises(ValueError, match=message):
        cl.Explorer(model, analysis=analysis)
    with pytest.raises(ValueError, match=message):
        plot_head_outputs(model, analysis)
    assert not list(tmp_path.iterdir())


def test_an_output_layer_upside_down_is_noticed(analysed, model, tmp_path):
    """Heads give the same outputs, so these alone do not tell."""
    model.W_U.data *= -1
    model.b_U.data *= -1
    with pytest.raises(ValueError, match="other weights"):
        analysed[1].report(tmp_path / "report.html")


def test_the_checkpoint_of_another_model_is_refused(analysed, model, tmp_path):
    analysis = analysed[1]
    own, other = tmp_path / "own", tmp_path / "other"
    cl.save_checkpoint(model, own)
    cl.save_checkpoint(cl.build_model(cl.ModelConfig(d_embed=6, n_heads=3), seed=2), other)
    report = tmp_path / "report.html"
    with pytest.raises(ValueError, match=r"checkpoint .*other: expected the model that was anal"):
        analysis.report(report, checkpoint=other)
    assert not report.exists()
    analysis.report(report, checkpoint=own)
    assert report.exists()


def test_a_loaded_analysis_knows_its_model(analysed, model, tmp_path):
    analysis = analysed[1]
    analysis.save(tmp_path / "analysis.safetensors")
    loaded = cl.HeadAnalysis.load(tmp_path / "analysis.safetensors")
    assert loaded.made_from.model == analysis.made_from.model
    assert loaded.made_from.task == analysis.made_from.task
    assert loaded.made_from.seen[1:] == analysis.made_from.seen[1:]
    for question, seen in analysis.made_from.seen.values.items():
        assert np.array_equal(loaded.made_from.seen.values[question], seen)
    loaded.check_made_from(model, cl.Count01(FEW))
    with pytest.raises(ValueError, match="splits: expected the data set of the analysis"):
        loaded.check_made_from(model, cl.Count01())
    model.b_U.data[0] += 1
    with pytest.raises(ValueError, match="other weights"):
        loaded.check_made_from(model, cl.Count01(FEW))


def test_the_same_model_in_double_precision_is_the_same(analysed, tmp_path):
    model, analysis = analysed
    try:
        model.double()
        assert analysis.report(tmp_path / "report.html").exists()
    finally:
        model.float()


def test_tasks_have_fingerprints():
    prompts = cl.Prompts([[0, 1, 4], [0, 2, 4], [0, 1, 2, 4]], answers=[6, 5, 6])
    task = cl.Task(prompts, prompts)
    others = [
        cl.Task(prompts, prompts, choices=[5, 6, 7]),
        cl.Task(prompts, prompts[:2]),
        cl.Task(prompts[[1, 0, 2]], prompts),
        cl.Task(cl.Prompts(prompts.tokens, [6, 6, 5]), prompts),
        cl.Task(cl.Prompts(prompts.tokens, prompts.answers, position=0), prompts),
        cl.Task(cl.Prompts(prompts.tokens, prompts.answers, subsets={"a": [True] * 3}), prompts),
        cl.Count01(FEW),
        cl.Count01(),
        cl.Count01(cl.make_splits(1)),
    ]
    same = cl.Task(cl.Prompts(prompts.tokens, torch.tensor([6, 5, 6])), prompts)
    assert same.fingerprint == task.fingerprint
    assert len({task.fingerprint, *(other.fingerprint for other in others)}) == 10


@pytest.mark.parametrize("change", [0.997, 1.003])
def test_a_patch_that_changes_little_is_noticed(change):
    """Ties are decided by far less than logits are large."""
    model = cl.ensemble_model(dtype=torch.float64)
    own = float(cl.analyze_heads(model, FEW).table["w01"][0])
    with cl.patch_attention(model, w01=own * change, others="keep"):
        analysis = cl.analyze_heads(model, FEW)
        assert len(analysis.groups(progress=False)) == 15
        analysis = cl.analyze_heads(model, FEW)
    with pytest.raises(ValueError, match="hooks were attached to it or taken off since"):
        analysis.groups(progress=False)


def test_a_hook_on_a_prompt_that_was_not_among_the_few_is_noticed():
    model = two_layers()
    rare = FEW.test.counts[1].sum() + 2  # the second prompt is none of eight of twelve

    def hook(z, hook):
        return z * (1 + (z.shape[1] == rare))

    with hooks_attached(model, [("blocks.0.attn.hook_z", hook)]):
        analysis = cl.analyze_heads(model, FEW)
    with pytest.raises(ValueError, match="hooks were attached to it or taken off since"):
        analysis.groups(progress=False)


def test_an_analysis_of_several_answers_can_be_read_back(tmp_path):
    rows = [
        [0, *row, 4]
        for row in torch.randint(1, 4, (60, 9), generator=torch.Generator().manual_seed(1)).tolist()
    ]
    prompts = cl.Prompts(rows, answers=[4 + row[2] for row in rows])
    analysis = cl.analyze_heads(two_layers(), cl.Task.split(prompts, test=0.5, seed=0))
    analysis.save(tmp_path / "analysis")
    loaded = cl.HeadAnalysis.load(tmp_path / "analysis")
    assert loaded.table.equals(analysis.table)
    assert np.array_equal(loaded.fits.classes, analysis.fits.classes)
    assert np.array_equal(loaded.fits.starts, analysis.fits.starts)
