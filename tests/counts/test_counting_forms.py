"""Models of any counting task on counts, held against plain TransformerLens on token sequences."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch import Tensor

import count01_lens as cl
from count01_lens.counts.choice_readout import ChoiceReadout, learned_choice_readout
from count01_lens.counts.closed_form import CountForm
from count01_lens.counts.multiplicities import Multiplicities
from count01_lens.counts.readout import (
    CountReadout,
    attention_ratios,
    head_weights,
    learned_readout,
    ratio_names,
)
from count01_lens.counts.rounding import RoundingErrors
from count01_lens.heads.runners import CountRunner, HookRunner, model_logits, runner_for
from count01_lens.models.build import hooked_transformer
from count01_lens.models.parameters import initial_raw, transformer_lens_parameters
from count01_lens.training.trainer import next_token_loss
from tests.lens_versions import call_with

SMALL = {part: cl.CountSpec(size=60, counts=(0, 5)) for part in ("train", "validation", "test")}
SYMBOLS, ANSWERS = ["a", "b", "c1", "d", "e", "f2"], ["X", "Y", "Z9", "W", "V"]


def drawn_task(seed: int) -> cl.CountingTask:
    """A task with one to six symbols and two to five answers; its rule is drawn, too."""
    rng = np.random.default_rng(seed)
    symbols, answers = SYMBOLS[: rng.integers(1, 7)], ANSWERS[: rng.integers(2, 6)]
    names = [f"n{symbol}" for symbol in symbols]
    rule = []
    for _ in answers[1:]:
        one, other = rng.choice(names, 2)
        term = other if one != other else str(rng.integers(1, 3))
        rule.append(f"{one} {rng.choice(['>', '>=', '<'])} {rng.integers(1, 3)}*{term}")
    try:
        return cl.CountingTask(symbols, answers, rule, **SMALL)
    except ValueError:  # an answer that is never right
        return drawn_task(seed + 1000)


def drawn_model(seed: int, task: cl.CountingTask, init: str = "normal"):
    kind = dict(output=["fused", "residual"][seed % 2], qkv_bias=seed % 3 == 0)
    config = cl.ModelConfig(d_embed=6, n_heads=3, init=init, n_ctx=64, **kind)
    return cl.build_model(config, seed=seed, dtype=torch.float64, task=task)


def on_sequences(model, split: cl.Split, at: str, without=()) -> tuple[Tensor, Tensor]:
    """Logits and head outputs of one sentence after the other, with heads set to zero by hooks."""

    def zero(z, hook):
        z[:, :, list(without)] = 0.0
        return z

    hooks = [("blocks.0.attn.hook_z", zero)] if without else []
    logits, outputs, back = [], [], 3 if at == "=" else 2
    for row in split.sequences():
        with model.hooks(fwd_hooks=hooks), torch.no_grad():
            found, cache = model.run_with_cache(row[None])
        logits.append(found[0, -back])
        outputs.append(cache["blocks.0.attn.hook_z"][0, -back])
    return torch.stack(logits), torch.stack(outputs)


@pytest.mark.parametrize("seed", range(12))
def test_three_ways_to_run_a_model_of_any_task(seed):
    task = drawn_task(seed)
    model, split = drawn_model(seed, task), task.splits.test
    assert cl.why_not_counts(model) is None
    for at in ("=", "answer"):
        expected, outputs = on_sequences(model, split, at)
        torch.testing.assert_close(cl.compact_logits(model, split, at), expected)
        torch.testing.assert_close(model_logits(model, split.counts, at), expected)
        torch.testing.assert_close(cl.head_outputs(model, split, at), outputs)
        place = task.language.place(at)
        form = CountForm.from_models([model])
        attention = form.attention(Multiplicities.of(split.counts, place, torch.float64))
        torch.testing.assert_close(
            attention.sum(dim=(-1, -2)), torch.ones(1, len(split), 3).double()
        )


@pytest.mark.parametrize("seed", range(4))
def test_gradients_are_those_of_sequences(seed):
    task = drawn_task(seed)
    config = cl.ModelConfig(d_embed=5, n_heads=2, n_ctx=64, output=["fused", "residual"][seed % 2])
    raw = initial_raw(config, seed, torch.float64, d_vocab=task.language.d_vocab)
    model, counts = hooked_transformer(raw, config, task), task.splits.train.counts[:20]
    leaves = {name: value.clone().requires_grad_() for name, value in raw.items()}
    parameters = transformer_lens_parameters(leaves, config)
    form = CountForm.from_parameters(
        {name: value[None] for name, value in parameters.items()}, 1.0, task.language
    )
    both = form.logits(Multiplicities.at_both(counts, torch.float64, task.language))[0]
    labels = task.language.labels(counts)
    loss = next_token_loss(*both.chunk(2), labels, 0.7, language=task.language)
    found = torch.autograd.grad(loss, list(leaves.values()), retain_graph=True, allow_unused=True)

    total = torch.zeros((), dtype=torch.float64)
    for row in cl.Split("some", counts, language=task.language).sequences():
        log_probabilities = call_with(model, parameters, row[None])[0].log_softmax(dim=-1)
        total = total - log_probabilities[-3, row[-2]] - 0.7 * log_probabilities[-2, row[-1]]
    expected = torch.autograd.grad(total / len(counts), list(leaves.values()), allow_unused=True)
    torch.testing.assert_close(loss, total / len(counts))
    for one, other, name in zip(found, expected, leaves, strict=True):
        assert (one is None) == (other is None), name
        if one is not None:
            torch.testing.assert_close(one, other, msg=name)


@pytest.mark.filterwarnings("ignore:.* test prompts are among the training prompts")
@pytest.mark.parametrize("seed", range(6))
def test_an_analysis_on_counts_is_that_of_hooks(seed):
    task = drawn_task(seed + 50)
    model = drawn_model(seed, task)
    runner = runner_for(model, task.questions["answer"].test)
    assert isinstance(runner, CountRunner)
    analysis = cl.analyze_heads(model, task)
    choices = {name: list(question.choices) for name, question in task.questions.items()}
    for mask, l_acc, eos in analysis.groups()[["mask", "l_acc", "eos_l_acc"]].itertuples(
        index=False
    ):
        without = [head for head in range(3) if not int(mask) >> head & 1]
        for name, at, value in (("answer", "=", l_acc), ("end", "answer", eos)):
            logits, _ = on_sequences(model, task.splits.test, at, without)
            chosen = logits[:, choices[name]].flip(-1).argmax(dim=-1)  # of equal ones the later
            chosen = torch.tensor(choices[name])[len(choices[name]) - 1 - chosen]
            right = chosen == task.questions[name].test.answers
            assert value == pytest.approx(right.double().mean().item())
    written_out = cl.Task(
        *(
            cl.Prompts(part.sequences(), part.answers, part.positions, part.subsets)
            for part in (task.questions["answer"].train, task.questions["answer"].test)
        ),
        choices=choices["answer"],
    )
    by_hooks = cl.analyze_heads(model, written_out)
    for column in ("l_acc", "roc_auc", "s_acc"):
        # Of outputs that differ by rounding alone, ranks are a matter of luck.
        off = 2e-3 if column == "roc_auc" else 1e-9
        np.testing.assert_allclose(analysis.table[column], by_hooks.table[column], atol=off)


@pytest.mark.parametrize("seed", range(6))
def test_verification_is_that_of_every_sentence_one_by_one(seed):
    task = drawn_task(seed + 90)
    model, up_to, k = drawn_model(seed, task), 2, len(task.language.symbols)
    found = cl.verify(model, up_to)
    counts = torch.tensor(list(itertools.product(range(up_to + 1), repeat=k)))
    split = cl.Split("all", counts, language=task.language)
    logits, _ = on_sequences(model, split, "=")
    ends, _ = on_sequences(model, split, "answer")
    answers = logits[:, task.language.answer_ids]
    wrong = len(task.language.answers) - 1 - answers.flip(-1).argmax(
        dim=-1
    ) != task.language.answer(counts)
    assert found.n_sentences == len(counts) == 3**k
    assert found.n_errors == int(wrong.sum())
    assert found.n_ties == int(split.ties.sum())
    assert found.n_tie_errors == int((wrong & split.ties).sum())
    assert found.n_eos_errors == int((ends.argmax(dim=-1) != task.language.eos).sum())
    others = [
        token
        for token in range(task.language.d_vocab)
        if not (task.language.answer_ids.start <= token < task.language.answer_ids.stop)
    ]
    says_other = answers.amax(dim=-1) <= logits[:, others].amax(dim=-1)
    assert found.n_other_tokens == int(says_other.sum())
    margins = answers.sort(dim=-1).values
    right = answers.gather(1, task.language.answer(counts)[:, None])[:, 0]
    best = torch.where(right == margins[:, -1], margins[:, -2], margins[:, -1])
    assert found.smallest_margin == pytest.approx(float((right - best).abs().min()))
    examples = {tuple(row) for row in found.counterexamples.tolist()}
    assert examples <= {tuple(row) for row in counts[wrong].tolist()}
    assert len(examples) == min(100, int(wrong.sum()))
    assert found.n_below_rounding == 0


def test_rounding_bounds_hold_for_several_answers():
    """Margins in float32 and in float64 differ by less than the bound of the pair, and not idly."""
    task = cl.counting_task("majority")
    reached = []
    for seed in range(4):
        config = cl.ModelConfig(d_embed=6, n_heads=3, init="normal")
        model = cl.build_model(config, seed=seed, task=task)
        errors = RoundingErrors(model, torch.float64, 40, task.language)
        counts = torch.randint(0, 41, (300, 3), generator=torch.Generator().manual_seed(seed))
        right = task.language.answer(counts)[:, None]
        margins = []
        for dtype in (torch.float32, torch.float64):
            form = CountForm.from_models([model], dtype=dtype)
            at = Multiplicities.of(counts, task.language.at_equals, dtype)
            answers = form.logits(at)[0][:, task.language.answer_ids].double()
            of_right = answers.gather(1, right)[:, 0]
            margins.append(of_right - answers.scatter(1, right, -math.inf).amax(dim=-1))
        off, bound = (margins[0] - margins[1]).abs(), errors._errors(counts)
        assert bool((off < bound).all())
        assert bool((errors.largest[counts.sum(dim=1) + 2] >= bound).all())
        reached.append(float((off / bound).max()))
        assert errors.count_unsafe(counts, bound * 0.99) == len(counts)
        assert errors.count_unsafe(counts, -bound * 1.01) == 0
    assert max(reached) > 1e-3


@pytest.mark.parametrize("seed", range(6))
def test_readouts_decide_as_the_head_does(seed):
    task = drawn_task(seed + 20)
    model, language = drawn_model(seed, task, "pytorch"), task.language
    form, counts = CountForm.from_models([model]), task.splits.test.counts
    parts = cl.head_logits(model, counts)[..., language.answer_ids]
    bias = form.logit_bias[0, language.equals, language.answer_ids]
    for head in range(3):
        sums = (parts[:, head] + bias).numpy()
        if len(language.answers) == 2:
            written = learned_readout(form, head)
            assert (written.decide(counts) == (sums[:, 0] > sums[:, 1])).all()
        else:
            written = learned_choice_readout(form, head)
            assert (written.decide(counts) == sums.argmax(axis=1)).all()
            coefficients = written.coefficients
            linear = counts.numpy() @ coefficients[:, 1:].T + coefficients[:, 0]
            assert (linear.argmax(axis=1) == sums.argmax(axis=1)).mean() > 0.98
        assert 0 <= written.disagreement(counts) < 0.1
    probes = cl.analyze_heads(model, task)
    assert probes.counts["readout"].notna().all()
    ratios = attention_ratios(form)
    assert len(ratios) == len(ratio_names(language)) == len(language.symbols) - 1
    scores = form.scores[0, :, language.equals].numpy()
    for place, ratio in enumerate(ratios, start=2):
        np.testing.assert_allclose(ratio, np.exp(scores[:, 1] - scores[:, place]))
    assert head_weights(form).sum() == pytest.approx(1)


def test_readouts_read_well():
    language = cl.counting_task("majority").language
    zeros, values = np.zeros(5), np.full((3, 5), 0.2)
    values[[0, 1, 2], [1, 2, 3]] += 1.0
    values[1, 0] += 0.41
    written = ChoiceReadout(zeros, values, language)
    assert str(written) == "largest of A: na; B: nb + 0.41; C: nc"
    assert written.decide([[3, 1, 1], [2, 2, 2], [1, 1, 2]]).tolist() == [0, 1, 2]
    assert written.disagreement([[3, 1, 1], [2, 2, 2], [0, 0, 9]]) == 0
    assert str(ChoiceReadout(zeros, np.eye(3, 5) * [1, 0, 0, 0, 0], language)) == "always 'A'"
    extreme = ChoiceReadout(np.array([2000.0, 0, 0, 0, 0]), values, language)
    assert str(extreme) == "always 'B'"
    twice = cl.counting_task("twice").language
    assert str(CountReadout(zeros, np.array([0, -2.0, 1, 0, -0.3]), twice)) == "n1 − 2·n0 − 0.3 > 0"


@pytest.mark.parametrize("others", ["zero", "keep"])
@pytest.mark.parametrize("at", ["=", "answer"])
def test_patched_attention_of_any_task(others, at):
    task = cl.counting_task("two_comparisons")
    model = drawn_model(1, task)
    rng = np.random.default_rng(0)
    counts = torch.from_numpy(rng.integers(0, 5, (20, 4)))
    split = cl.Split("some", counts, language=task.language)
    given = {"1": 2.0, "2": math.inf, "3": 0.25}
    ratios = cl.Ratios(ratios=given, heads=[0, 2], others=others, at=at)
    weights = cl.Weights({"0": 1, "1": 0.5, "2": 0, "3": 4}, heads=[0, 2], others=others, at=at)
    short = cl.Ratios(w01=2.0, w02=math.inf, ratios={"3": 0.25}, heads=[0, 2], others=others, at=at)
    runner = runner_for(model, task.questions["answer"].test)
    prompts = cl.tasks.counting_task.CountPrompts(split, task.language.place(at))
    found = [runner.under(each).logits(prompts) for each in (ratios, weights, short)]
    torch.testing.assert_close(found[1], found[0])
    torch.testing.assert_close(found[2], found[0])
    by_hooks = HookRunner(model, interventions=(ratios,)).logits(prompts)
    torch.testing.assert_close(by_hooks, found[0])
    with cl.patch_attention(model, ratios=given, heads=[0, 2], others=others, at=at):
        expected, _ = on_sequences(model, split, at)
        torch.testing.assert_close(cl.compact_logits(model, counts, at), expected)
    torch.testing.assert_close(found[0], expected)
    assert not torch.allclose(expected, on_sequences(model, split, at)[0])


def test_the_patched_row_itself():
    task = cl.counting_task("two_comparisons")
    model = drawn_model(2, task)
    name = "blocks.0.attn.hook_pattern"
    with cl.patch_attention(model, ratios={"1": 2.0, "2": 4.0, "3": math.inf}):
        _, cache = model.run_with_cache("01123=")
    row = torch.tensor([0, 1, 0.5, 0.5, 0.25, 0, 0]).double() / 2.25
    torch.testing.assert_close(cache[name][0, 1, -1], row)
    own = model.run_with_cache("01123=")[1][name][0, 1, -1]
    with cl.patch_attention(model, ratios={"1": 2.0}):  # the others keep theirs
        patched = model.run_with_cache("01123=")[1][name][0, 1, -1]
    torch.testing.assert_close(patched[1] / patched[4], own[1] / own[4])
    torch.testing.assert_close(patched[1] / patched[2], torch.tensor(2.0).double())
    with cl.copy_attention(model, "33210=", heads=[1]):
        copied = model.run_with_cache("01123=")[1][name][0, 1, -1]
    torch.testing.assert_close(copied, model.run_with_cache("33210=")[1][name][0, 1, -1])


@pytest.mark.parametrize(
    ("ratios", "message"),
    [
        ({"0": 1.0}, "expected those of '0' over '1' or '2' or '3', got one over '0'"),
        ({"a": 1.0}, "got one over 'a'"),
        ({"1": -1.0}, r"ratios\['1'\]: expected None or a number from 0"),
        ({"1": 0, "2": 0}, "at most one zero"),
        (3, "ratios: expected numbers by symbol"),
    ],
)
def test_bad_ratios(ratios, message):
    model = drawn_model(2, cl.counting_task("two_comparisons"))
    with pytest.raises((ValueError, TypeError), match=message):
        cl.patch_attention(model, ratios=ratios).__enter__()
    with pytest.raises(ValueError, match="those of \\['1'\\] once"):
        cl.Ratios(w01=1.0, ratios={"1": 2.0})
    other = drawn_model(2, cl.counting_task("majority"))
    with pytest.raises(ValueError, match="got one over '1'"):
        cl.patch_attention(other, w01=2.0).__enter__()


def test_sweeps_of_any_task():
    task = cl.counting_task("two_comparisons")
    model = drawn_model(1, task)
    tiny = cl.CountingTask("0123", "45", "n1 > n0 and n3 > n2", **SMALL)
    sweep = cl.sweep_attention(model, "w03", values=[0.5, 1.0], task=tiny)
    assert sweep.s_acc.shape == (2, 3)
    patched = cl.Ratios(ratios={"1": 1.0, "2": 1.0, "3": 0.5})
    with patched.applied(model):
        by_hooks = cl.analyze_heads(model, tiny)
    np.testing.assert_allclose(sweep.s_acc[0], by_hooks.table["s_acc"], atol=1e-9)
    np.testing.assert_allclose(sweep.own, attention_ratios(CountForm.from_models([model]))[2])
    with pytest.raises(ValueError, match="ratio: expected 'w01' or 'w02' or 'w03'"):
        cl.sweep_attention(model, "wab", task=tiny)


def test_a_model_of_another_vocabulary_is_refused():
    model = drawn_model(0, cl.counting_task("majority"))
    reason = cl.why_not_counts(model, cl.Count01())
    assert reason == "its vocabulary has 9 tokens (and 9 logits), the language 8"
    with pytest.raises(ValueError, match="expected the 8 tokens of Count01, got 9"):
        cl.analyze_heads(model, cl.Count01())
    with pytest.raises(ValueError, match="vocabulary has 8 tokens"):
        cl.verify(cl.example_model(), 3, task=cl.counting_task("majority"))
    with pytest.raises(TypeError, match="task: expected a CountingTask"):
        cl.why_not_counts(model, "majority")
    split = cl.counting_task("majority").splits.test
    known = cl.compact_logits(model, split)
    model.tokenizer = None  # a model from elsewhere: the task has to be given
    assert torch.equal(cl.compact_logits(model, split), known)
    assert cl.why_not_counts(model, cl.counting_task("majority")) is None
    assert cl.verify(model, 3, task=cl.counting_task("majority")).n_sentences == 64
    assert cl.qk_table(drawn_model(0, cl.counting_task("majority")), 1).columns.tolist() == [
        "[BOS]", "a", "b", "c", "=", "A", "B", "C", "[EOS]",
    ]  # fmt: skip


def test_a_domain_that_is_too_large_is_refused_at_once():
    model = drawn_model(0, cl.counting_task("most_frequent"))
    with pytest.raises(ValueError, match=r"at most 8,012,006,001 sentences, got 201\^5"):
        cl.verify(model, 200)
    assert cl.verify(model, 1).up_to == 1
