"""Where biases come from: hand-made heads with known origins, every condition, a tiny run."""

import dataclasses
import itertools
import math

import numpy as np
import pandas as pd
import pytest
import torch

import count01_lens as cl
from count01_lens.counts.closed_form import CountForm
from count01_lens.tasks.language import Token
from count01_lens.training.recipe import check_stackable
from experiments import bias_shares, claims, eos_bias
from experiments.bias_shares import ORIGINS, bias_of, compared, origins, shared_biases
from experiments.setup import Setup
from experiments.suite import spread

RECIPE = cl.TrainConfig(
    model=cl.ModelConfig(d_embed=4, n_heads=4, qkv_bias=True), epochs=2, batch_size=2000
)
# One head for each combination of what was before and what is without the task, and two that have
# no part: one has no bias with '[EOS]', one has the other answer's.
START = [4, 4, 0, 0, 5, 4]
TRAINED = [4, 4, 4, 4, 0, 5]
WITHOUT = [4, 0, 4, 0, 0, 4]


def test_a_bias_is_the_answer_of_nearly_all_sentences():
    one_sided, four = [1.0, 0.95, 0.95, 0.949, 0.949], [1.0, 0.95, 0.05, 0.949, 0.051]
    assert bias_of(one_sided, four).tolist() == [4, 4, 5, 0, 0]


def test_origins_of_known_heads():
    found = origins(START, TRAINED, WITHOUT)
    # Five heads are biased; the last was and would be, but to the other answer.
    assert found["initialisation"] == pytest.approx(1 / 5)
    assert found["both"] == pytest.approx(1 / 5)
    assert found["answer_task"] == pytest.approx(1 / 5)
    assert found["only_with_second_task"] == pytest.approx(2 / 5)
    assert found["kept_from_start"] == pytest.approx(2 / 5)
    assert found["without_it_too"] == pytest.approx(2 / 5)


def test_conditions_cannot_be_swapped():
    only_at_start = origins([4, 5, 4, 5], [4, 5, 4, 5], [0, 0, 0, 0])
    assert only_at_start["both"] == 1
    only_without = origins([0, 0, 0, 0], [4, 5, 4, 5], [4, 5, 4, 5])
    assert only_without["answer_task"] == 1
    # What is biased only at the start and without the task is no bias that needs explaining.
    assert origins([4, 4], [0, 5], [4, 4])["only_with_second_task"] == 1


def test_the_other_answer_is_another_bias():
    found = origins([5, 4], [4, 5], [5, 4])
    assert found["only_with_second_task"] == 1
    assert found["kept_from_start"] == found["without_it_too"] == 0


@pytest.mark.parametrize("name", [*ORIGINS, "kept_from_start", "without_it_too"])
def test_chance_is_the_mean_over_all_ways_to_pair_heads(name):
    start, trained, without = [4, 0, 5, 4], [4, 5, 4, 0], [0, 4, 5, 4]
    shares = [
        origins(one, trained, other)[name]
        for one, other in itertools.product(
            itertools.permutations(start), itertools.permutations(without)
        )
    ]
    found = origins(start, trained, without)[f"{name}_by_chance"]
    assert found == pytest.approx(np.mean(shares))


@pytest.mark.parametrize("suffix", ["", "_by_chance"])
def test_origins_add_up(suffix):
    rng = np.random.default_rng(0)
    for _ in range(20):
        found = origins(*rng.choice([0, 4, 5], (3, 16)))
        part = {name: found[f"{name}{suffix}"] for name in found if f"{name}{suffix}" in found}
        assert sum(part[name] for name in ORIGINS) == pytest.approx(1)
        assert part["kept_from_start"] == pytest.approx(part["initialisation"] + part["both"])
        expected = part["initialisation"] + part["answer_task"]
        assert part["without_it_too"] == pytest.approx(expected)


def test_no_biased_head_has_no_origin():
    assert all(math.isnan(value) for value in origins([4, 5], [0, 0], [4, 5]).values())
    assert all(math.isnan(value) for value in shared_biases([0, 0], [4, 5]))


def test_shared_biases_of_known_heads():
    same, chance = shared_biases([4, 4, 5, 0], [4, 5, 0, 4])
    assert same == pytest.approx(1 / 3)
    # Two heads of four are biased to '4' there, one to '5'.
    assert chance == pytest.approx((2 / 4 + 2 / 4 + 1 / 4) / 3)


def test_differences_become_words_by_their_interval():
    assert compared(spread([0.1, 0.2, 0.15])).startswith("more than")
    assert compared(spread([-0.1, -0.2, -0.15])).startswith("fewer than")
    assert compared(spread([-0.1, 0.2])).startswith("not clearly different")
    assert compared(spread([0.3])) == "against"


def table_of_heads(**biases):
    """Heads of one seed, with the same biases at the start whatever they are trained with."""
    rows = [
        dict(condition=name, seed=1, moment=moment, head=head, bias=bias)
        for name, values in biases.items()
        if name != "start"
        for moment, side in (("start", biases["start"]), ("trained", values))
        for head, bias in enumerate(side)
    ]
    columns = ("l_acc", "s_acc", "mean_margin", "std_margin", "accuracy", "second_accuracy")
    heads = pd.DataFrame(rows).assign(**dict.fromkeys(columns, 0.5))
    heads.loc[(heads["condition"] == "without") & (heads["moment"] == "trained"), "l_acc"] = 0.75
    return heads


def hand_made(trained=TRAINED):
    others = {"copy": [0] * 6, "other_token": trained, "frozen": [4, 0, 0, 0, 0, 0]}
    return table_of_heads(start=START, **{"with": trained}, without=WITHOUT, **others)


def numbers_of(heads):
    biases = eos_bias.biases_by_head(heads)
    by_seed = bias_shares.origins_by_seed(biases, eos_bias.START)
    runs = eos_bias.runs_of(heads, biases)
    return eos_bias.numbers_of(runs) | eos_bias.origin_numbers(by_seed)


def test_numbers_of_known_heads():
    found = {name: value["mean"] for name, value in numbers_of(hand_made()).items()}
    assert found["biased_at_start"] == pytest.approx(4 / 6)
    assert found["biased_with"] == found["biased_other_token"] == pytest.approx(5 / 6)
    assert found["biased_without"] == pytest.approx(3 / 6)
    assert found["biased_copy"] == 0
    assert found["biased_frozen"] == pytest.approx(1 / 6)
    assert found["copy_fewer_biased"] == pytest.approx(5 / 6)
    assert found["frozen_fewer_biased"] == pytest.approx(4 / 6)
    assert found["fewer_biased"] == pytest.approx(2 / 6)
    assert found["other_token_fewer_biased"] == pytest.approx(0)
    assert found["l_acc_without"] == pytest.approx(0.75)
    assert found["l_acc_at_start"] == found["l_acc_with"] == pytest.approx(0.5)
    assert found["l_acc_rises"] == pytest.approx(0.25)
    assert found["at_half_with"] == 1
    assert found["at_half_without"] == 0
    assert found["kept_with"] == pytest.approx(2 / 6)
    assert found["new_with"] == pytest.approx(3 / 6)
    # Without the task, the first and the last head are as they were.
    assert found["kept_without"] == pytest.approx(2 / 6)
    assert found["new_without"] == pytest.approx(1 / 6)
    assert found["other_token_too"] == 1
    assert found["frozen_too"] == pytest.approx(1 / 5)
    assert found["copy_too"] == 0
    assert found["kept_from_start"] == pytest.approx(2 / 5)
    assert found["without_beyond_other_token"] == pytest.approx(2 / 5 - 1)


def test_the_sentence_says_what_the_numbers_say():
    text = eos_bias.sentence(numbers_of(hand_made()))
    assert "At the start 67 % of heads are biased" in text
    assert "40 % come from the second task alone" in text
    assert text.index("second task alone") < text.index("initialisation alone")
    assert "40 % were there at the start, against" in text


def test_without_any_bias_the_sentence_says_so():
    text = eos_bias.sentence(numbers_of(hand_made(trained=[0] * 6)))
    assert "0 % with the '[EOS]' loss" in text
    assert "No head is biased after training with '[EOS]'" in text
    assert "nan" not in text


@pytest.mark.parametrize("size", ["quick", "full"])
def test_jobs_train_every_condition_from_the_same_seeds(size):
    setup = Setup(size, cl.TrainConfig.paper(), cl.TrainConfig.paper())
    trained = {}
    for job in eos_bias.jobs(setup):
        stack = [cl.TrainConfig.from_dict(recipe) for recipe in job.configuration["recipes"]]
        check_stackable(stack)
        assert job.configuration["head_epochs"] == [0, setup.epochs]
        for recipe in stack:
            trained.setdefault(recipe, []).extend(job.configuration["seeds"])
    expected = {"quick": [7400, 7401], "full": list(range(7400, 7410))}[size]
    assert all(seeds == expected for seeds in trained.values())
    assert set(trained) == set(eos_bias.recipes(setup).values())
    found = {(r.second_task, r.eos_weight, r.train_output_bias) for r in trained}
    tenth = {("end", 0.1, True)} if size == "full" else set()
    assert found == tenth | {
        ("end", 1.0, True), ("end", 0.0, True), ("copy", 1.0, True), ("other_token", 1.0, True),
        ("end", 1.0, False),
    }  # fmt: skip


def known_model():
    """Two heads that attend evenly: one writes '4' always, one as far as 1s outnumber 0s."""
    values = torch.zeros(1, 2, 8, 1)
    values[0, 0] = 1
    values[0, 1, Token.ONE], values[0, 1, Token.ZERO] = 1, -1
    weights = torch.zeros(1, 2, 1, 8)
    weights[..., Token.FOUR] = 1
    return CountForm(torch.zeros(1, 2, 8, 8), values, weights, torch.zeros(1, 8, 8))


def test_how_often_known_heads_favour_four():
    split = cl.make_splits(0).test
    four = split.labels.double().mean().item()
    assert bias_shares.favours_four(known_model(), split).tolist() == pytest.approx([1, four])


@pytest.mark.parametrize(
    ("said", "right"),
    [({}, "none"), ({"EOS": 9}, "end"), ({"TWO": 9}, "other_token"), ({"FOUR": 9}, "copy")],
)
def test_second_tasks_are_judged_by_their_own_token(said, right):
    split = cl.make_splits(0).test
    form = known_model()
    for token, logit in said.items():
        form.logit_bias[..., Token[token]] += logit
    found = {
        task: bias_shares.second_accuracy(form, split, task)
        for task in ("end", "other_token", "copy")
    }
    # Two heads that only ever write '4' are right about the answer where it is '4'.
    four = split.labels.double().mean().item()
    expected = {"end": float(right == "end"), "other_token": float(right == "other_token")}
    assert found == pytest.approx({**expected, "copy": 0 if sum(expected.values()) else four})


@pytest.fixture(scope="module")
def tiny():
    setup = Setup("full", RECIPE, RECIPE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(eos_bias, "SEEDS", {"full": range(3)})
        patch.setattr(eos_bias, "IN_STACK", 2)
        values = {job.key: job.function(**job.configuration) for job in eos_bias.jobs(setup)}
        return eos_bias.measure(lambda job: values[job.key], setup)


def test_a_tiny_run_measures_every_condition(tiny):
    heads, runs = tiny.tables["heads"], tiny.tables["runs"]
    assert len(runs) == 6 * 3 * 2
    assert len(heads) == 6 * 3 * 2 * 4
    assert list(dict.fromkeys(runs["condition"])) == [
        condition.label for condition in eos_bias.CONDITIONS.values()
    ]
    asked = {claim.id.partition(".")[2] for claim in claims.CLAIMS if claim.row == "E2"}
    assert asked <= set(tiny.numbers)
    assert all(tiny.numbers[name]["n"] == 3 for name in asked)
    assert tiny.recipe["second_task"] == ["copy", "end", "other_token"]
    assert tiny.recipe["train_output_bias"] == [False, True]
    assert (runs["biased"] - runs["kept"] - runs["new"]).abs().max() < 1e-12


def test_the_start_is_the_same_whatever_comes_after(tiny):
    heads = tiny.tables["heads"]
    start = heads[heads["moment"] == "start"].pivot(
        index=["seed", "head"], columns="condition", values=["mean_margin", "one_sided"]
    )
    for column in ("mean_margin", "one_sided"):
        np.testing.assert_allclose(start[column].std(axis=1), 0, atol=1e-6)


def test_the_answer_that_is_favoured_is_measured_on_the_same_heads(tiny):
    heads = tiny.tables["heads"]
    more_often = np.maximum(heads["favours_four"], 1 - heads["favours_four"])
    np.testing.assert_allclose(more_often, heads["one_sided"], atol=1e-3)
    # Where all sentences agree, the mean cannot disagree.
    always = heads[heads["one_sided"] == 1]
    assert len(always)
    assert (np.where(always["mean_margin"] > 0, 4, 5) == always["bias"]).all()


def test_each_condition_has_the_models_of_its_own_recipe(tiny):
    heads = tiny.tables["heads"]
    changes = eos_bias.CONDITIONS["copy"].changes
    recipe = dataclasses.replace(RECIPE, **changes)
    result = cl.train(recipe, seeds=[2], progress=False)
    expected = cl.head_evolution(result, [RECIPE.epochs])
    rows = heads[
        (heads["condition"] == "copy the answer")
        & (heads["moment"] == "trained")
        & (heads["seed"] == 2)
    ]
    np.testing.assert_allclose(rows["mean_margin"], expected["mean_margin"], atol=1e-5)


def test_words_of_the_figure_claim_no_result(tiny):
    shown = tiny.figures["eos_bias"]
    for text in (shown.alt, shown.caption):
        assert not {"fewer", "more", "less", "better", "worse"} & set(text.lower().split())
