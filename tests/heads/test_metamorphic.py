"""What must not change, or only in a known way, when a model is changed: no oracle is needed."""

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import count01_lens as cl
from count01_lens.counts.closed_form import CountForm
from count01_lens.counts.readout import attention_ratios, head_weights, learned_readout
from count01_lens.heads.head_data import HeadData
from count01_lens.heads.metrics import METRICS, Groups
from count01_lens.heads.runners import model_logits
from count01_lens.models.build import hooked_transformer
from count01_lens.models.config import ModelConfig
from count01_lens.models.lens import load_state, state_of
from count01_lens.models.parameters import initial_raw
from count01_lens.tasks.dataset import Split, Splits

SPLITS = cl.make_splits(
    1,
    train=cl.SplitSpec(size=120, zeros_and_ones=(0, 9), twos=(0, 9)),
    validation=cl.SplitSpec(size=10, zeros_and_ones=(0, 9), twos=(0, 9)),
    test=cl.SplitSpec(size=61, zeros_and_ones=(4, 14), twos=(0, 14)),
)
COUNTS = SPLITS.test.counts
HEADS = ("W_Q", "W_K", "W_V", "b_Q", "b_K", "b_V", "W_O")
NUMBERS = ["l_acc", "roc_auc", "s_acc", "s_acc_ties", "s_acc_others", "eos_l_acc"]
BIASES = ["mean_margin", "std_margin"]
COUNT_NUMBERS = ["w01", "w02", "head_weight"]
WORDS = ["category", "readout", "learned_readout"]
FEW = settings(max_examples=12)


@st.composite
def models(draw):
    """Raw parameters and config of a random model, its biases and layer norms random, too."""
    config = ModelConfig(
        d_embed=draw(st.integers(3, 6)),
        n_heads=draw(st.integers(2, 4)),
        d_head=draw(st.integers(1, 3)),
        output=draw(st.sampled_from(["fused", "residual"])),
        layer_norm=draw(st.booleans()),
        qkv_bias=draw(st.booleans()),
        scale_scores=draw(st.booleans()),
        n_ctx=64,
    )
    seed = draw(st.integers(0, 2**32))
    raw = initial_raw(config, seed, torch.float64)
    rng = np.random.default_rng(seed)
    for name, value in raw.items():
        if name.startswith(("b_", "ln_")):
            raw[name] = value + torch.from_numpy(rng.standard_normal(value.shape))
    raw["W_Q"] = raw["W_Q"] * draw(st.sampled_from([0.3, 1.0, 3.0]))
    return raw, config


def changed(raw, config, change):
    """The HookedTransformer of raw parameters, after `change(its parameters by name)`."""
    model = hooked_transformer(raw, config)
    state = {name: value.clone() for name, value in state_of(model).items()}
    change({name.split(".")[-1]: value for name, value in state.items()})
    load_state(model, state)
    return model


def analysis_of(model, splits=SPLITS):
    """Analyse a model with all its groups, if no sentence hangs on rounding."""
    analysis = cl.analyze_heads(model, splits)
    assume(nothing_hangs_on_rounding(analysis.data))
    analysis.groups(progress=False)
    return analysis


def bits(masks, n_heads):
    """Groups as rows of booleans: bit i of a mask stands for head i."""
    return np.array([[mask >> head & 1 == 1 for head in range(n_heads)] for mask in masks.tolist()])


def nothing_hangs_on_rounding(data: HeadData) -> bool:
    """Whether all groups decide all test sentences clearly, and rank no two of them as equals."""
    masks = bits(np.arange(1, 2**data.n_heads), data.n_heads)
    parts = masks.astype(float)
    answer, end = (
        np.einsum("gh,phc->gpc", parts, asked.heads) + asked.rest
        for asked in (data.asked["answer"], data.asked["end"])
    )
    lead = answer[..., 0] - answer[..., 1]
    end_lead = end[..., 0] - end[..., 1:].max(axis=-1)  # '[EOS]' is the first of its choices
    flat = data.test_outputs.reshape(len(data.test_labels), -1)
    weights = Groups(data, masks).fits.weights
    probe = flat @ weights[:, :-1].T + weights[:, -1]
    clear = all(np.abs(margins).min() > 1e-6 for margins in (lead, end_lead, probe))
    for choice in (0, 1):
        written = parts @ data.answer.heads[..., choice].T
        yes, no = written[:, data.test_labels], written[:, ~data.test_labels]
        gaps = np.abs(yes[:, :, None] - no[:, None, :])
        clear = clear and bool(gaps.min() > 1e-9)
    return clear


def assert_close(ours, expected):
    np.testing.assert_allclose(np.asarray(ours), np.asarray(expected), rtol=1e-6, atol=1e-8)


def assert_same_analysis(before, after, numbers, columns):
    """Hold all results of two analyses against each other; head i of the first is numbers[i]."""
    numbers = np.asarray(numbers)
    for name in columns:
        ours, expected = after.table[name].to_numpy()[numbers], before.table[name].to_numpy()
        if name in WORDS:
            assert ours.tolist() == expected.tolist()
        else:
            assert_close(ours, expected)
    for metric in METRICS:
        assert_close(after.pairs[metric][np.ix_(numbers, numbers)], before.pairs[metric])
    groups = before.groups()
    masks = bits(groups["mask"].to_numpy(), len(numbers)) @ (1 << numbers)
    rows = after.groups().set_index("mask").loc[masks]
    for metric in METRICS:
        assert_close(rows[metric], groups[metric])
    assert before.accuracy == pytest.approx(after.accuracy, nan_ok=True)


def assert_same_together(before, after, numbers):
    """Hold Shapley values, interactions and verdicts against each other: no head came or went."""
    numbers = np.asarray(numbers)
    for metric in METRICS:
        assert_close(after.shapley(metric)[numbers], before.shapley(metric))
        assert_close(
            after.interactions(metric)[np.ix_(numbers, numbers)], before.interactions(metric)
        )
    for task in ("answer", "end"):
        ours, expected = after.verdict[task], before.verdict[task]
        assert ours.word == expected.word
        moved = tuple(sorted(int(numbers[head]) for head in expected.interfering or ()))
        assert (ours.interfering or ()) == moved


def assert_same_logits(one, other, counts=COUNTS):
    for at in ("=", "answer"):
        assert_close(model_logits(other, counts, at), model_logits(one, counts, at))


@given(models(), st.data())
@FEW
def test_permuted_heads_have_permuted_results(made, data):
    raw, config = made
    numbers = np.array(data.draw(st.permutations(range(config.n_heads))))

    def permute(parameters):
        for name in HEADS:
            parameters[name][numbers] = parameters[name].clone()

    model, permuted = hooked_transformer(raw, config), changed(raw, config, permute)
    assert_same_logits(model, permuted)
    for at in ("=", "answer"):
        assert_close(
            cl.head_outputs(permuted, COUNTS, at)[:, numbers], cl.head_outputs(model, COUNTS, at)
        )
    before, after = analysis_of(model), analysis_of(permuted)
    columns = NUMBERS + BIASES + COUNT_NUMBERS + WORDS
    assert_same_analysis(before, after, numbers, columns)
    assert_same_together(before, after, numbers)


@given(models(), st.data())
@FEW
def test_a_rotated_output_space_changes_the_outputs_and_nothing_else(made, data):
    raw, config = made
    head = data.draw(st.integers(0, config.n_heads - 1))
    seed = data.draw(st.integers(0, 2**32))
    size = (config.d_head, config.d_head)
    Q, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal(size))
    R = torch.from_numpy(Q)

    def rotate(parameters):
        parameters["W_V"][head] = parameters["W_V"][head] @ R
        parameters["b_V"][head] = parameters["b_V"][head] @ R
        parameters["W_O"][head] = R.T @ parameters["W_O"][head]

    model, rotated = hooked_transformer(raw, config), changed(raw, config, rotate)
    assert_same_logits(model, rotated)
    expected = cl.head_outputs(model, COUNTS).clone()
    expected[:, head] = expected[:, head] @ R
    assert_close(cl.head_outputs(rotated, COUNTS), expected)
    assert_close(cl.head_logits(rotated, COUNTS), cl.head_logits(model, COUNTS))
    assert_close(cl.qk_table(rotated, head), cl.qk_table(model, head))
    assert_close(cl.ov_table(rotated, head), cl.ov_table(model, head))
    before, after = analysis_of(model), analysis_of(rotated)
    numbers = np.arange(config.n_heads)
    assert_same_analysis(before, after, numbers, NUMBERS + BIASES + COUNT_NUMBERS + WORDS)
    assert_same_together(before, after, numbers)


def without_ties(split):
    return Split(split.name, split.counts[~split.ties])


def with_roles_swapped(split):
    return Split(split.name, split.counts[:, [1, 0, 2]])


NO_TIES = Splits(*(without_ties(getattr(SPLITS, n)) for n in ("train", "validation", "test")))
SWAPPED = Splits(
    *(with_roles_swapped(getattr(NO_TIES, n)) for n in ("train", "validation", "test"))
)


def swap_roles(parameters):
    """Let '0' and '1' change places, and so '4' and '5', wherever they are read or written."""
    order = [0, 2, 1, 3, 4, 6, 5, 7]
    parameters["W_E"][:] = parameters["W_E"][order].clone()
    answers = [0, 1, 2, 3, 4, 6, 5, 7]
    parameters["W_U"][:] = parameters["W_U"][:, answers].clone()
    parameters["b_U"][:] = parameters["b_U"][answers].clone()


@given(models())
@FEW
def test_swapping_the_roles_of_0_and_1_swaps_the_answers(made):
    raw, config = made
    model, swapped = hooked_transformer(raw, config), changed(raw, config, swap_roles)
    for at in ("=", "answer"):
        expected = model_logits(model, NO_TIES.test, at)[:, [0, 1, 2, 3, 4, 6, 5, 7]]
        assert_close(model_logits(swapped, SWAPPED.test, at), expected)
    before, after = analysis_of(model, NO_TIES), analysis_of(swapped, SWAPPED)
    numbers = np.arange(config.n_heads)
    # The training majority is worth the same, since neither answer has exactly half.
    assert NO_TIES.train.labels.double().mean() != 0.5
    assert_same_analysis(before, after, numbers, [*NUMBERS[:3], "eos_l_acc", "category"])
    assert_same_together(before, after, numbers)
    assert_close(after.table["mean_margin"], -before.table["mean_margin"])
    assert_close(after.table["w01"], 1 / before.table["w01"])
    assert_close(after.table["w02"], before.table["w02"] / before.table["w01"])
    assert_close(after.table["head_weight"], before.table["head_weight"])
    forms = CountForm.from_models([model]), CountForm.from_models([swapped])
    for head in numbers:
        one, other = (learned_readout(form, int(head)) for form in forms)
        decisions = one.decide(NO_TIES.test), other.decide(SWAPPED.test)
        assert (decisions[0] == ~decisions[1]).all()
        # The inequality turns round; its positive factor is arbitrary.
        ours, expected = other.coefficients[[0, 2, 1, 3]], -one.coefficients
        assert_close(ours / np.abs(ours).sum(), expected / np.abs(expected).sum())


def with_another_head(raw, config, place, head, out):
    """Put a head, given by its parameters, before head `place`; `out` is its output matrix."""
    larger = ModelConfig(
        d_embed=config.d_embed, n_heads=config.n_heads + 1, d_head=config.d_head,
        output=config.output, layer_norm=config.layer_norm, qkv_bias=config.qkv_bias,
        scale_scores=config.scale_scores, n_ctx=config.n_ctx,
    )  # fmt: skip
    grown = dict(raw)
    for name, value in {**head, out_name(config): out}.items():
        grown[name] = torch.cat([raw[name][:place], value[None], raw[name][place:]])
    return grown, larger


def out_name(config):
    return "W_out" if config.output == "fused" else "W_O"


def head_names_of(raw):
    return [name for name in ("W_Q", "W_K", "W_V", "b_Q", "b_K", "b_V") if name in raw]


@given(models(), st.data())
@FEW
def test_a_dead_head_changes_nothing_for_the_others(made, data):
    raw, config = made
    place = data.draw(st.integers(0, config.n_heads))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    head = {
        name: torch.from_numpy(rng.standard_normal(raw[name].shape[1:]))
        for name in head_names_of(raw)
    }
    out = torch.zeros_like(raw[out_name(config)][0])
    model = hooked_transformer(raw, config)
    grown = hooked_transformer(*with_another_head(raw, config, place, head, out))
    assert_same_logits(model, grown)
    numbers = np.array([n for n in range(config.n_heads + 1) if n != place])
    before, after = analysis_of(model), cl.analyze_heads(grown, SPLITS)
    assert_same_analysis(before, after, numbers, NUMBERS + BIASES + COUNT_NUMBERS + WORDS)
    assert after.table["head_weight"][place] == 0
    assert after.table["roc_auc"][place] == 0.5
    # To all but the probe, which reads outputs themselves, it is worth nothing in any group.
    for metric in ("l_acc", "roc_auc", "eos_l_acc"):
        interactions = after.interactions(metric)
        assert_close(interactions[place], np.zeros(config.n_heads + 1))
        assert_close(interactions[np.ix_(numbers, numbers)], before.interactions(metric))


@given(models(), st.data())
@FEW
def test_a_head_in_two_halves_is_the_head(made, data):
    raw, config = made
    head = data.draw(st.integers(0, config.n_heads - 1))
    halved = dict(raw)
    out = raw[out_name(config)].clone()
    out[head] /= 2
    halved[out_name(config)] = out
    copy = {name: raw[name][head] for name in head_names_of(raw)}
    model = hooked_transformer(raw, config)
    doubled = hooked_transformer(
        *with_another_head(halved, config, config.n_heads, copy, out[head])
    )
    assert_same_logits(model, doubled)
    written = cl.head_logits(doubled, COUNTS)
    assert_close(written[:, head] + written[:, -1], cl.head_logits(model, COUNTS)[:, head])
    before, after = analysis_of(model), analysis_of(doubled)
    # What a probe or a ranking sees does not depend on how strongly the output layer reads it.
    for name in ["roc_auc", "s_acc", "s_acc_ties", "s_acc_others", "w01", "w02"]:
        assert_close(after.table[name][: config.n_heads], before.table[name])
        assert_close(after.table[name].iloc[-1], before.table[name][head])
    weights = after.table["head_weight"].to_numpy()
    joined = weights[:-1] + weights[-1] * (np.arange(config.n_heads) == head)
    assert_close(joined, before.table["head_weight"])
    # Both halves together are the head: groups with both are groups with it.
    both = 1 << config.n_heads
    masks = before.groups()["mask"].to_numpy()
    rows = after.groups().set_index("mask").loc[masks | np.where(masks >> head & 1, both, 0)]
    for metric in ("l_acc", "roc_auc", "eos_l_acc"):
        assert_close(rows[metric], before.groups()[metric])


@given(models(), st.integers(0, 2**32))
@FEW
def test_a_constant_added_to_all_keys_changes_only_the_scores(made, seed):
    raw, config = made
    shift = torch.from_numpy(
        np.random.default_rng(seed).standard_normal((config.n_heads, config.d_head))
    )

    def add_to_keys(parameters):
        parameters["b_K"] += shift

    model, shifted = hooked_transformer(raw, config), changed(raw, config, add_to_keys)
    assert_same_logits(model, shifted)
    forms = CountForm.from_models([model]), CountForm.from_models([shifted])
    assert not torch.equal(forms[0].scores, forms[1].scores)
    for ours, expected in zip(*(attention_ratios(form) for form in forms), strict=True):
        assert_close(ours, expected)
    assert_close(head_weights(forms[1]), head_weights(forms[0]))
    for head in range(config.n_heads):
        one, other = (learned_readout(form, head).coefficients for form in forms)
        assert_close(one, other)


@given(models(), st.permutations(range(len(COUNTS))))
@FEW
def test_the_order_of_the_test_sentences_does_not_matter(made, order):
    model = hooked_transformer(*made)
    shuffled = Splits(SPLITS.train, SPLITS.validation, Split("test", COUNTS[list(order)]))
    before, after = analysis_of(model), analysis_of(model, shuffled)
    numbers = np.arange(made[1].n_heads)
    assert_same_analysis(before, after, numbers, NUMBERS + BIASES + COUNT_NUMBERS + WORDS)


counts_up_to_200 = st.integers(0, 200)


@given(
    st.floats(10, 30), st.floats(1e-4, 1e-3), st.booleans(),
    st.lists(st.tuples(counts_up_to_200, counts_up_to_200), min_size=1, max_size=20),
    st.lists(counts_up_to_200, min_size=2, max_size=10),
)  # fmt: skip
@settings(max_examples=30)
def test_noise_does_not_matter_to_the_minimal_model(n, epsilon, skip, pairs, twos):
    """Within what it is made for: N from 10 to 30, epsilon from 1e-4 to 1e-3, up to 200 of each."""
    model = cl.minimal_model(n=n, epsilon=epsilon, skip=skip)
    pairs = pairs + [(n0, n0 + lead) for n0, _ in pairs for lead in (0, 1) if n0 < 200]
    said = []
    for n2 in (0, *twos):
        counts = torch.tensor([[n0, n1, n2] for n0, n1 in pairs])
        said.append([model_logits(model, counts, at).argmax(dim=-1) for at in ("=", "answer")])
    for after_equals, after_answer in said:
        assert torch.equal(after_equals, said[0][0])
        assert torch.equal(after_answer, said[0][1])
