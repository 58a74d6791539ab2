"""What stands in the place of heads that are taken out: zeros, means, outputs on other prompts."""

import numpy as np
import pytest
import torch

import count01_lens as cl
from count01_lens.heads.hook_runner import HookRunner
from count01_lens.heads.replacements import N_OTHERS, Replacement
from tests.helpers import deep_model, hooks_left
from tests.lens_versions import NO_CACHE, needs_3

GENERATOR = torch.Generator().manual_seed(4)
ROWS = [torch.randint(0, 8, (n,), generator=GENERATOR) for n in [4, 5, 7, 5, 4, 6]]
PROMPTS = cl.Prompts(ROWS, [2, 3] * 3, position=[-1, -2, 3, -1, -1, 2])


def outputs_alone(model, row):
    names = [f"blocks.{layer}.attn.hook_z" for layer in range(model.cfg.n_layers)]
    _, cache = model.run_with_cache(row[None], names_filter=names)
    return torch.cat([cache[name][0] for name in names], dim=1).detach()


def test_resampled_outputs_are_those_on_another_prompt():
    model = deep_model()
    found = Replacement.by(HookRunner(model), "resample", PROMPTS, seed=1)
    seen = [row[: at + 1] for row, at in zip(ROWS, PROMPTS.positions, strict=True)]
    theirs = [outputs_alone(model, row) for row in seen]
    at_query = found.at_query(PROMPTS)
    for i, row in enumerate(seen):
        donors = [j for j in range(6) if torch.allclose(at_query[i], theirs[j][-1])]
        assert donors
        assert all(not torch.equal(seen[j], row) for j in donors)
        # Aligned at the end; before the beginning of the other stands its first output.
        for layer in range(2):
            everywhere = found.in_layer(layer, row[None])[0]
            donor = theirs[donors[0]][:, 3 * layer : 3 * layer + 3]
            places = [max(0, len(donor) - len(row) + p) for p in range(len(row))]
            torch.testing.assert_close(everywhere, donor[places])


def test_which_prompt_stands_in_depends_on_the_tokens_and_the_seed_alone():
    runner = HookRunner(deep_model())
    one, same, other = (Replacement.by(runner, "resample", PROMPTS, seed) for seed in (5, 5, 6))
    assert torch.equal(one.at_query(PROMPTS), same.at_query(PROMPTS))
    assert not torch.equal(one.at_query(PROMPTS), other.at_query(PROMPTS))
    some = one.at_query(PROMPTS[[4, 1]])
    assert torch.equal(some, one.at_query(PROMPTS)[[4, 1]])


def test_it_is_drawn_from_all_prompts():
    rows = torch.randint(0, 8, (200, 5), generator=torch.Generator().manual_seed(0))
    prompts = cl.Prompts(rows, [2, 3] * 100)
    found = Replacement.by(HookRunner(deep_model()), "resample", prompts)
    drawn = [found._other(row) for row in rows]
    assert len(found.others) == N_OTHERS
    assert len(set(drawn)) > 0.9 * N_OTHERS


@pytest.mark.parametrize("mode", ["zero", "mean", "resample"])
def test_ablated_heads_write_what_replaces_them(mode):
    model = deep_model()
    found = Replacement.by(HookRunner(model), mode, PROMPTS, seed=2)
    expected = cl.head_outputs(model, PROMPTS)
    instead = found.at_query(PROMPTS)
    heads = [3, 5]  # of the last layer: nothing later depends on them
    expected[:, heads] = 0.0 if instead is None else instead[:, heads]
    with cl.ablate_heads(model, heads, mode, data=PROMPTS, seed=2):
        torch.testing.assert_close(cl.head_outputs(model, PROMPTS), expected)
    assert hooks_left(model) == 0


def test_attention_in_both_directions_resamples_prompts_of_one_length():
    model = deep_model(attention_dir="bidirectional")
    found = Replacement.by(HookRunner(model), "resample", PROMPTS)
    donor = outputs_alone(model, ROWS[3])
    torch.testing.assert_close(found.in_layer(0, ROWS[1][None])[0], donor[:, :3])
    with pytest.raises(ValueError, match="another prompt of 7 tokens to resample from, got none"):
        found.at_query(PROMPTS)


def test_every_length_has_prompts_to_resample_from():
    model = deep_model(attention_dir="bidirectional")
    rng = np.random.default_rng(0)
    rows = [rng.integers(0, 8, 4 if i % 100 else 6) for i in range(300)]  # three of six tokens
    found = Replacement.by(HookRunner(model), "resample", cl.Prompts(rows, [2, 3] * 150))
    for row in (rows[0], rows[1], rows[100]):
        row = torch.from_numpy(row)
        other = found.others[found._other(row)]
        assert len(other) == len(row)
        assert not torch.equal(other, row)


def test_a_prompt_is_not_resampled_from_itself():
    same = cl.Prompts([[1, 2, 3]] * 4, [2, 3] * 2)
    found = Replacement.by(HookRunner(deep_model()), "resample", same)
    with pytest.raises(ValueError, match="expected another prompt to resample from"):
        found.at_query(same)


@needs_3(NO_CACHE)
def test_a_cache_cannot_be_resampled():
    from transformer_lens.cache.key_value_cache import TransformerLensKeyValueCache

    model = cl.example_model()
    cache = TransformerLensKeyValueCache.init_cache(model.cfg, "cpu", 1)
    rows, more = torch.ones(1, 4, dtype=torch.long), torch.ones(1, 1, dtype=torch.long)
    with cl.ablate_heads(model, [0], "resample", data=[[1, 2, 3], [3, 1, 2]]):
        model(rows, past_kv_cache=cache)
        with pytest.raises(ValueError, match="expected whole prompts to resample outputs for"):
            model(more, past_kv_cache=cache)


@pytest.mark.parametrize("mode", ["zero", "mean", "resample"])
def test_accuracy_inside_a_block_is_l_acc(mode):
    model = cl.example_model()
    splits = cl.make_splits(
        1,
        train=cl.SplitSpec(size=80, zeros_and_ones=(0, 9), twos=(0, 4)),
        test=cl.SplitSpec(size=50, zeros_and_ones=(10, 14), twos=(0, 4)),
    )
    analysis = cl.analyze_heads(model, splits, ablation=mode)
    assert analysis.data.ablation == mode
    assert cl.accuracy(model, splits.test) == analysis.accuracy["answer"]
    for head in (0, 7):
        others = [h for h in range(16) if h != head]
        with cl.ablate_heads(model, others, mode, data=splits.train):
            assert cl.accuracy(model, splits.test) == pytest.approx(analysis.table["l_acc"][head])


def test_the_ablation_is_kept_in_the_file(tmp_path):
    model = deep_model(n_layers=1, attn_only=True)
    rows = np.random.default_rng(0).integers(0, 8, (60, 5))
    task = cl.Task.split(cl.Prompts(rows, 2 + rows[:, -1] % 4))
    analysis = cl.analyze_heads(model, task, ablation="mean")
    zero = cl.analyze_heads(model, task)
    analysis.save(tmp_path / "analysis")
    loaded = cl.HeadAnalysis.load(tmp_path / "analysis")
    assert loaded.data.ablation == "mean"
    assert loaded.groups().equals(analysis.groups())
    assert not np.allclose(analysis.groups()["l_acc"], zero.groups()["l_acc"])
    # What heads write, and what probes find, does not depend on what replaces them.
    for name in ("roc_auc", "s_acc"):
        assert zero.table[name].equals(analysis.table[name])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ablation": "noise"}, "ablation: expected 'zero' or 'mean' or 'resample', got 'noise'"),
        ({"ablation": "resample", "seed": -1}, "seed: expected a whole number from 0 to "),
        ({"budget": -3}, "budget: expected a whole number of at least 0"),
        ({"budget": 1.5}, "budget: expected a whole number"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        cl.analyze_heads(cl.example_model(), **options)


@pytest.mark.parametrize(
    ("data", "choices", "message"),
    [
        (PROMPTS, [2], "choices: expected at least two different tokens"),
        (PROMPTS, [2, 5], "choices: .* all answers .* among them"),
        (PROMPTS, [2, 3, 99], "choices: expected token ids of the model"),
        (cl.Prompts([[1]], [2]), None, "choices: expected at least two"),
    ],
)
def test_accuracy_refuses(data, choices, message):
    model = deep_model()
    model.add_hook("hook_embed", lambda value, hook: 1 / 0)
    with pytest.raises(ValueError, match=message):
        cl.accuracy(model, data, choices)
