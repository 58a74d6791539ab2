"""Any HookedTransformer, any task: every number against plain TransformerLens and scikit-learn."""

import contextlib

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from sklearn.svm import LinearSVC

import count01_lens as cl
from count01_lens.heads import group_runs
from count01_lens.heads.group_runs import PlainRuns, StreamRuns
from count01_lens.heads.hook_runner import HookRunner
from count01_lens.heads.replacements import Replacement
from tests.helpers import deep_model

SHORTFORMER = {"positional_embedding_type": "shortformer"}
KINDS = [
    {},
    {"n_layers": 1, "attn_only": True},
    {"n_layers": 1, "attn_only": True, "normalization_type": "LN"},
    {"n_layers": 1, "normalization_type": "LN"},
    {"n_layers": 3, "attn_only": True, "n_heads": 2, "normalization_type": "RMS"},
    {"n_layers": 1, "parallel_attn_mlp": True},
    {"d_vocab": 11, "d_vocab_out": 7, "normalization_type": "LNPre"},
    {"attention_dir": "bidirectional", "normalization_type": "LN"},
    {"positional_embedding_type": "rotary", "rotary_dim": 4, "gated_mlp": True},
    {"positional_embedding_type": "alibi"},
    SHORTFORMER,
    {"normalization_type": "RMS", "n_key_value_heads": 1},
    {"normalization_type": "RMS", "use_normalization_before_and_after": True},
    {"normalization_type": "LN", "final_rms": True},
    {"normalization_type": "RMS", "original_architecture": "Olmo2ForCausalLM"},
    {"normalization_type": "LN", "parallel_attn_mlp": True},
    {"normalization_type": "LN", "output_logits_soft_cap": 3.0},
    {"use_attn_result": True, "use_split_qkv_input": True},
    {"use_local_attn": True, "window_size": 3, "attn_types": ["local", "global"]},
]


def frozen():
    return pytest.warns(UserWarning, match="attributed at their frozen scale")


def some_task(model, n=36, n_answers=3, seed=0):
    """Prompts of different lengths, asked at different positions."""
    rng = np.random.default_rng(seed)
    rows = [rng.integers(0, model.cfg.d_vocab, int(n)) for n in rng.integers(4, 8, n)]
    answers = [int(row[0] + row[-1]) % n_answers + 2 for row in rows]
    positions = [int(rng.integers(2, len(row))) for row in rows]
    long = [len(row) > 5 for row in rows]
    prompts = cl.Prompts(rows, answers, positions, {"long": long})
    return cl.Task.split(prompts, test=0.5, seed=seed)


def logits_with_only(model, prompts, heads, instead=0.0):
    """Every prompt alone, by hooks of this test: all other heads' outputs replaced."""
    n = model.cfg.n_heads

    def replaced(layer):
        away = [head for head in range(n) if layer * n + head not in heads]

        def hook(z, hook):
            z = z.clone()
            z[:, :, away] = instead if isinstance(instead, float) else instead[layer, away].to(z)
            return z

        return f"blocks.{layer}.attn.hook_z", hook

    hooks = [replaced(layer) for layer in range(model.cfg.n_layers)]
    with torch.no_grad():
        rows = [
            model.run_with_hooks(row[None], fwd_hooks=hooks)[0, at]
            for row, at in zip(prompts.sequences(), prompts.positions, strict=True)
        ]
    return torch.stack(rows)


def accuracy_of(logits, question):
    """The later of equal ones wins."""
    chosen = logits[:, list(question.choices)].flip(1).argmax(dim=1)
    said = torch.tensor(question.choices).flip(0)[chosen]
    return float((said == question.test.answers).double().mean())


def mean_outputs(model, prompts):
    names = [f"blocks.{layer}.attn.hook_z" for layer in range(model.cfg.n_layers)]
    found = []
    for row, at in zip(prompts.sequences(), prompts.positions, strict=True):
        _, cache = model.run_with_cache(row[None], names_filter=names)
        found.append(torch.stack([cache[name][0, at] for name in names]))
    return torch.stack(found).mean(dim=0).detach()


@pytest.mark.parametrize("fields", KINDS, ids=str)
@pytest.mark.parametrize("mode", ["zero", "mean"])
def test_l_acc_of_every_group_is_that_of_the_model_run_without_the_others(fields, mode):
    model = deep_model(**fields)
    task = some_task(model)
    question = task.questions["answer"]
    analysis = cl.analyze_heads(model, task, ablation=mode)
    groups = analysis.groups()
    instead = mean_outputs(model, question.train) if mode == "mean" else 0.0
    for mask in (1, 2, 2**analysis.data.n_heads - 2, 2**analysis.data.n_heads - 1, 5):
        heads = [head for head in range(analysis.data.n_heads) if mask >> head & 1]
        logits = logits_with_only(model, question.test, heads, instead)
        assert groups["l_acc"][mask - 1] == pytest.approx(accuracy_of(logits, question))
    plain = torch.stack(
        [
            model(row[None])[0, at].detach()
            for row, at in zip(question.test.sequences(), question.test.positions, strict=True)
        ]
    )
    assert analysis.accuracy["answer"] == pytest.approx(accuracy_of(plain, question))
    assert cl.accuracy(model, task) == analysis.accuracy["answer"]
    long = question.test.subsets["long"]
    said = plain[:, list(question.choices)].argmax(dim=1).numpy()
    right = said == question.answers_of(question.test)
    assert analysis.accuracy["long"] == pytest.approx(right[long].mean())


# Positions of a shortformer are added in every layer: it is run plainly.
@pytest.mark.parametrize("fields", [kind for kind in KINDS if kind != SHORTFORMER], ids=str)
@pytest.mark.parametrize("mode", ["zero", "mean", "resample"])
def test_shared_runs_give_the_logits_of_plain_ones(fields, mode):
    model = deep_model(**fields)
    question = some_task(model).questions["answer"]
    runner = HookRunner(model)
    options = (question.test, question.choices, Replacement.by(runner, mode, question.train, 3))
    rng = np.random.default_rng(1)
    masks = rng.random((9, runner.n_heads)) < 0.6
    masks[:2] = [[False], [True]]
    masks = masks[np.lexsort(masks.T[::-1])]
    shared = np.concatenate(list(StreamRuns(runner, *options)(masks, group_runs._tell_nobody)))
    plain = np.concatenate(list(PlainRuns(runner, *options)(masks, group_runs._tell_nobody)))
    # TransformerLens has the slopes of ALiBi in float32.
    rounding = 1e-6 if fields.get("positional_embedding_type") == "alibi" else 1e-9
    np.testing.assert_allclose(shared, plain, rtol=rounding, atol=rounding)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("fields", [KINDS[0], KINDS[2], KINDS[3]], ids=str)
def test_any_precision(dtype, fields):
    """In half precision sums are rounded, so that close calls may go either way."""
    model = deep_model(**fields, dtype=dtype)
    task = some_task(model)
    analysis = cl.analyze_heads(model, task)
    question = task.questions["answer"]
    for mask in (1, 2**analysis.data.n_heads - 1):
        heads = [head for head in range(analysis.data.n_heads) if mask >> head & 1]
        logits = logits_with_only(model, question.test, heads)
        close = 0 if dtype == torch.float32 else 1 / len(question.test)
        found = analysis.groups()["l_acc"][mask - 1]
        assert abs(found - accuracy_of(logits, question)) <= close + 1e-12


def test_a_model_of_one_layer_is_run_once_for_all_groups(monkeypatch):
    blocks, plain = [], []
    run_block, run_plainly = StreamRuns._block, PlainRuns.__call__
    monkeypatch.setattr(
        StreamRuns,
        "_block",
        lambda self, *args: (blocks.append(args[0]), run_block(self, *args))[1],
    )
    monkeypatch.setattr(
        PlainRuns, "__call__", lambda self, *args: (plain.append(1), run_plainly(self, *args))[1]
    )
    model = deep_model(n_layers=1, n_heads=6, normalization_type="LN", n_ctx=61)
    analysis = cl.analyze_heads(model, some_task(model), progress=False)
    lengths = set(analysis.task.questions["answer"].test.positions)
    for calls in (blocks, plain):
        calls.clear()
    assert len(analysis.groups()) == 63
    # Single heads, pairs, all heads but one and none were run before, and are run no second time.
    assert blocks == [0] * len(lengths)
    assert not plain


def test_groups_that_agree_in_their_first_layers_share_their_run(monkeypatch):
    rows, run_block = [], StreamRuns._block

    def counted(self, layer, stream, *args):
        rows.append((layer, len(stream)))
        return run_block(self, layer, stream, *args)

    monkeypatch.setattr(StreamRuns, "_block", counted)
    model = deep_model(n_layers=2, n_heads=3, normalization_type="LN")
    prompts = cl.Prompts(torch.randint(0, 8, (20, 5)), [2, 3] * 10)
    runner = HookRunner(model)
    masks = np.array([[i >> h & 1 for h in range(6)] for i in range(64)], dtype=bool)
    masks = masks[np.lexsort(masks.T[::-1])]
    run = StreamRuns(runner, prompts, [2, 3], Replacement("zero"))
    assert sum(len(part) for part in run(masks, group_runs._tell_nobody)) == 64
    # Eight choices of heads of the first layer, one of which is none; each has one last layer.
    assert rows == [(0, 7), (1, 8)]


def test_a_model_that_computes_otherwise_is_run_plainly():
    model = deep_model(n_layers=1, normalization_type="LN", attn_only=True, n_ctx=60)

    class Another(type(model.blocks[0])):
        """Adds something after attention that nobody expects there."""

        def forward(self, stream, **options):
            after, more = super().forward(stream, **options), stream.mean(dim=1, keepdim=True)
            return (after[0] + more,) if isinstance(after, tuple) else after + more

    model.blocks[0].__class__ = Another
    question = some_task(model).questions["answer"]
    run = group_runs._road(HookRunner(model), question.test, question.choices, Replacement("zero"))
    assert isinstance(run, PlainRuns)


@pytest.mark.parametrize("fields", [KINDS[0], KINDS[2], KINDS[4], KINDS[16]], ids=str)
def test_direct_and_total_effect(fields):
    model = deep_model(**fields)
    task = some_task(model)
    question, table = task.questions["answer"], cl.analyze_heads(model, task).heads
    cap, n = model.cfg.output_logits_soft_cap, model.cfg.n_heads * model.cfg.n_layers
    columns = list(question.choices)
    right = torch.from_numpy(question.answers_of(question.test))

    def lead(logits):
        logits = cap * torch.atanh(logits / cap) if cap > 0 else logits
        chosen = logits[:, columns]
        others = [
            [value for j, value in enumerate(row.tolist()) if j != answer]
            for row, answer in zip(chosen, right.tolist(), strict=True)
        ]
        of_right = chosen[torch.arange(len(right)), right]
        return float((of_right - torch.tensor(others, dtype=torch.float64).mean(dim=1)).mean())

    whole = lead(logits_with_only(model, question.test, range(n)))
    for head in range(n):
        without = logits_with_only(model, question.test, [h for h in range(n) if h != head])
        assert table["total_effect"][head] == pytest.approx(whole - lead(without), abs=1e-8)
    with frozen() if model.cfg.normalization_type else contextlib.nullcontext():
        parts = cl.head_logits(model, question.test)
    chosen = parts[:, :, columns]
    of_right = chosen[torch.arange(len(right)), :, right]
    mean_of_others = (chosen.sum(dim=-1) - of_right) / (len(columns) - 1)
    expected = (of_right - mean_of_others).mean(dim=0).numpy()
    np.testing.assert_allclose(table["direct_effect"], expected, atol=1e-8)
    np.testing.assert_allclose(
        table["self_repair"], table["direct_effect"] - table["total_effect"], atol=1e-12
    )


def test_effects_are_the_same_where_nothing_reads_what_heads_write():
    model = deep_model(n_layers=1, attn_only=True)
    table = cl.analyze_heads(model, some_task(model)).heads
    assert "self_repair" not in table


def test_a_hundred_answers():
    model = deep_model(n_layers=1, d_vocab=130, n_heads=2, normalization_type="LN", d_model=24)
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, 130, (900, 3))
    tokens[:, 0] = np.arange(900) % 100  # every answer is there
    task = cl.Task.split(cl.Prompts(tokens, tokens[:, 0]), test=0.3, seed=1)
    question = task.questions["answer"]
    assert len(question.choices) == 100
    analysis = cl.analyze_heads(model, task)
    logits = logits_with_only(model, question.test, [1])
    assert analysis.table["l_acc"][1] == pytest.approx(accuracy_of(logits, question))
    answers = question.answers_of(question.test)
    with frozen():
        scores = cl.head_logits(model, question.test)[:, 1][:, list(question.choices)].numpy()
    areas = [roc_auc_score(answers == c, scores[:, c]) for c in range(100) if (answers == c).any()]
    assert analysis.table["roc_auc"][1] == pytest.approx(np.mean(areas))
    probe = LinearSVC(C=1000, tol=1e-8, max_iter=200_000)
    train, test = (
        cl.head_outputs(model, part)[:, 1].numpy() for part in (question.train, question.test)
    )
    probe.fit(train, question.answers_of(question.train))
    assert abs(analysis.table["s_acc"][1] - probe.score(test, answers)) <= 0.002


@pytest.mark.parametrize("mode", ["zero", "mean", "resample"])
def test_count01_as_prompts_gives_what_counts_give(mode):
    splits = cl.make_splits(
        3,
        train=cl.SplitSpec(size=150, zeros_and_ones=(0, 9), twos=(0, 5)),
        test=cl.SplitSpec(size=60, zeros_and_ones=(10, 14), twos=(0, 9)),
    )
    model = cl.build_model(cl.ModelConfig(d_embed=8, n_heads=4, output="residual"), seed=2).double()

    def written(split):
        rows = [row[:-2] for row in split.sequences()]
        return cl.Prompts(
            rows, torch.where(split.labels, 5, 6), subsets={"ties": split.ties.numpy()}
        )

    task = cl.Task(written(splits.train), written(splits.test), choices=[5, 6])
    by_counts = cl.analyze_heads(model, splits, ablation=mode)
    by_hooks = cl.analyze_heads(model, task, ablation=mode)
    assert by_counts.counts is not None
    assert by_hooks.counts is None
    for name in ("l_acc", "roc_auc", "s_acc"):
        np.testing.assert_allclose(by_counts.groups()[name], by_hooks.groups()[name], atol=1e-12)
        np.testing.assert_allclose(by_counts.pairs[name], by_hooks.pairs[name], atol=1e-12)
    assert by_counts.accuracy["answer"] == by_hooks.accuracy["answer"]


def test_alibi_in_both_directions_is_refused():
    """What TransformerLens computes of it depends on what was run before."""
    model = deep_model(positional_embedding_type="alibi", attention_dir="bidirectional")
    short, long = torch.arange(4)[None], torch.arange(8)[None]
    before = model(short)
    model(long)
    assert not torch.allclose(model(short), before)
    with pytest.raises(ValueError, match="expected causal attention with ALiBi"):
        cl.analyze_heads(model, some_task(model))
