"""Bridges of users, native ones and those to other libraries, against runs without any hook.

The oracle takes heads out by other means: their columns of the output matrix are set to zero in the
wrapped module itself, and the model is run by whoever made it.
"""

import contextlib
import copy
import itertools

import numpy as np
import pytest
import torch

import count01_lens as cl
from count01_lens.models.lens import has_bridges

pytestmark = pytest.mark.skipif(
    not has_bridges(),
    reason="cannot run in CI: TransformerLens 3 has other bridges; `make test-tl4` runs it",
)

NATIVE = {
    "plain": {"attn_only": True, "normalization_type": None, "n_layers": 1},
    "one layer with norms": {"attn_only": True, "n_layers": 1},
    "three layers": {"attn_only": True, "n_layers": 3, "n_heads": 2},
    "MLPs": {},
    "norms without weights": {"normalization_type": "LNPre"},
    "grouped heads": {"n_key_value_heads": 2},
    "as Llama has it": {
        "normalization_type": "RMS",
        "positional_embedding_type": "rotary",
        "gated_mlp": True,
        "n_key_value_heads": 1,
        "act_fn": "silu",
    },
    "both directions": {"attention_dir": "bidirectional"},
    "a field that is ignored": {
        "parallel_attn_mlp": True,
        "n_layers": 1,
        "normalization_type": None,
    },
    "soft caps": {"attn_scores_soft_cap": 3.0, "output_logits_soft_cap": 2.0},
}


OF_TRANSFORMERS = ["GPT2LMHeadModel", "LlamaForCausalLM", "GPTNeoXForCausalLM", "OPTForCausalLM",
    "GPTJForCausalLM", "BloomForCausalLM",
]  # fmt: skip


def native(**fields):
    from transformer_lens.config import TransformerBridgeConfig
    from transformer_lens.model_bridge import TransformerBridge

    given = dict(
        d_model=16, d_head=4, n_heads=4, n_layers=2, n_ctx=32, d_vocab=40, act_fn="gelu",
        normalization_type="LN", seed=3,
    )  # fmt: skip
    bridge = TransformerBridge.boot_native(TransformerBridgeConfig(**given | fields))
    generator = torch.Generator().manual_seed(4)
    for parameter in bridge.parameters():
        parameter.data += 0.3 * torch.randn(parameter.shape, generator=generator)
    return bridge


def of_transformers(architecture):
    """A small model of the library transformers with random weights, behind a bridge."""
    import transformers
    from transformer_lens.model_bridge.sources._bridge_builder import build_bridge_from_module

    sizes = {
        "GPT2LMHeadModel": dict(n_positions=32, n_embd=16, n_layer=2, n_head=4),
        "BloomForCausalLM": dict(hidden_size=16, n_layer=2, n_head=4),
        "GPTJForCausalLM": dict(n_positions=32, n_embd=16, n_layer=2, n_head=4, rotary_dim=4),
        "OPTForCausalLM": dict(
            hidden_size=16, ffn_dim=20, num_hidden_layers=2, num_attention_heads=4,
            max_position_embeddings=32, word_embed_proj_dim=16,
        ),
    }.get(architecture)  # fmt: skip
    if sizes is None:
        sizes = dict(
            hidden_size=16, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4,
            max_position_embeddings=32,
        )  # fmt: skip
    if architecture == "LlamaForCausalLM":
        sizes["num_key_value_heads"] = 2
    kind = getattr(transformers, architecture)
    config = kind.config_class(vocab_size=40, attn_implementation="eager", **sizes)
    with torch.random.fork_rng():
        torch.manual_seed(5)
        model = kind(config).eval()
        for parameter in model.parameters():
            parameter.data += 0.2 * torch.randn(parameter.shape)
    return build_bridge_from_module(model, architecture, hf_config=config)


@pytest.fixture(scope="module", params=[*NATIVE, *OF_TRANSFORMERS])
def bridge(request):
    name = request.param
    return native(**NATIVE[name]) if name in NATIVE else of_transformers(name)


@pytest.fixture(scope="module")
def task():
    rng = np.random.default_rng(0)
    rows = [rng.integers(0, 40, n) for n in rng.integers(4, 8, 48)]
    answers = [int(row[0]) % 3 + 2 for row in rows]
    return cl.Task.split(cl.Prompts(rows, answers), test=0.5, seed=0)


def logits_without(bridge, prompts, heads):
    """Logits at the end of each prompt, run alone, with columns of output matrices set to zero."""
    n, d = bridge.cfg.n_heads, bridge.cfg.d_head
    changed = copy.deepcopy(bridge)
    for head in heads:
        attention = changed.blocks[head // n].attn.o.original_component
        columns = slice(head % n * d, (head % n + 1) * d)
        # Conv1D of GPT-2 has what it reads first, a linear layer last.
        in_first = type(attention).__name__ == "Conv1D"
        attention.weight.data[columns if in_first else (slice(None), columns)] = 0.0
    with torch.no_grad():
        rows = [changed.original_model(tokens[None]) for tokens in prompts.sequences()]
    return torch.stack([getattr(row, "logits", row)[0, -1] for row in rows])


def accuracy_of(logits, prompts, choices):
    found = torch.tensor(choices)[logits[:, choices].argmax(dim=-1)]
    return float((found == torch.as_tensor(prompts.answers)).double().mean())


def test_l_acc_of_every_group_is_that_of_the_model_without_the_others(bridge, task):
    question = task.questions["answer"]
    choices = list(question.choices)
    table = cl.analyze_heads(bridge, task).groups()
    n = bridge.cfg.n_layers * bridge.cfg.n_heads
    for mask in [1, 2, 3, 5, 2**n - 2, 2**n - 1]:
        without = [head for head in range(n) if not mask >> head & 1]
        expected = accuracy_of(
            logits_without(bridge, question.test, without), question.test, choices
        )
        (found,) = table["l_acc"][table["mask"] == mask]
        assert found == pytest.approx(expected), mask


def test_ablated_heads_are_gone(bridge, task):
    prompts = task.questions["answer"].test
    with cl.ablate_heads(bridge, [0, (0, 1)]), torch.no_grad():
        rows = [bridge(tokens[None])[0, -1] for tokens in prompts.sequences()]
    torch.testing.assert_close(
        torch.stack(rows), logits_without(bridge, prompts, [0, 1]), atol=1e-4, rtol=1e-4
    )


def test_direct_logit_attribution_is_what_the_last_layer_loses(bridge, task):
    """Nothing but the final norm, which is frozen, and MLPs read what the last layer writes."""
    prompts = task.questions["answer"].test
    frozen = bridge.cfg.normalization_type is not None
    expected = (
        pytest.warns(UserWarning, match="frozen scale") if frozen else contextlib.nullcontext()
    )
    with expected:
        parts = cl.head_logits(bridge, prompts)
    assert parts.shape == (len(prompts), bridge.cfg.n_layers * bridge.cfg.n_heads, 40)
    if bridge.cfg.attn_only and not frozen:
        whole = logits_without(bridge, prompts, [])
        for head in range(parts.shape[1]):
            lost = whole - logits_without(bridge, prompts, [head])
            torch.testing.assert_close(parts[:, head], lost, atol=1e-4, rtol=1e-4)


def test_a_bridge_is_left_as_it_was(bridge, task):
    tokens = torch.tensor([[1, 2, 3, 4]])
    before = {name: value.clone() for name, value in bridge.state_dict().items()}
    logits = bridge(tokens)
    points = {name: len(point.fwd_hooks) for name, point in bridge.hook_dict.items()}
    cl.analyze_heads(bridge, task)
    assert torch.equal(bridge(tokens), logits)
    assert all(torch.equal(value, before[name]) for name, value in bridge.state_dict().items())
    assert {name: len(point.fwd_hooks) for name, point in bridge.hook_dict.items()} == points


def test_attention_of_any_bridge_can_be_shown(bridge):
    view = cl.show_attention(bridge, [1, 2, 3])
    _, cache = bridge.run_with_cache(torch.tensor([[1, 2, 3]]))
    layers = range(bridge.cfg.n_layers)
    expected = torch.cat([cache[f"blocks.{layer}.attn.hook_pattern"][0] for layer in layers])
    torch.testing.assert_close(view.attention, expected)
    assert "hook_attn_scores" not in view.page


def test_a_pattern_that_is_only_shown_can_be_looked_at_and_not_patched(monkeypatch):
    """The hook point is there, hands out a pattern, and nobody uses what comes back."""
    from transformer_lens.model_bridge.sources.native import NativeAttention

    monkeypatch.setattr(NativeAttention, "accepts_pattern_fn", False)
    model = cl.example_model()
    with cl.ablate_heads(model, [0]):
        assert cl.accuracy(model, [[3, 5, 2], [5, 3, 2]]) == 1.0
    for call in (
        lambda: cl.patch_attention(model, w01=1.0).__enter__(),
        lambda: cl.set_attention(model, {"0": 1.0}).__enter__(),
        lambda: cl.copy_attention(model, "01=").__enter__(),
        lambda: cl.compact_logits(model, [[1, 2, 3]]),
    ):
        with pytest.raises(ValueError, match="expected edits at hook_pattern to act"):
            call()


def test_outputs_of_heads_that_are_only_shown_are_refused(monkeypatch, task):
    from transformer_lens.model_bridge.sources.native import NativeAttention

    forward = NativeAttention.forward

    def later(self, hidden_states, **options):
        """Attention that runs its output projection on what it has kept."""
        out, pattern = forward(self, hidden_states, **options)
        return out.roll(1, dims=-1), pattern

    monkeypatch.setattr(NativeAttention, "forward", later)
    other = native()
    for call in (
        lambda: cl.analyze_heads(other, task),
        lambda: cl.ablate_heads(other, [0]).__enter__(),
        lambda: cl.head_outputs(other, task.questions["answer"].test),
    ):
        with pytest.raises(ValueError, match="expected edits at hook_z to act"):
            call()


@pytest.mark.parametrize("field", ["rotary", "gated"])
def test_what_a_checkpoint_cannot_hold_is_said(tmp_path, field):
    fields = {"rotary": {"positional_embedding_type": "rotary"}, "gated": {"gated_mlp": True}}
    with pytest.raises(ValueError, match="got what only one of them does"):
        cl.save_checkpoint(native(**fields[field]), tmp_path / "model")
    with pytest.raises(ValueError, match="got a bridge to a GPT2LMHeadModel"):
        cl.save_checkpoint(of_transformers("GPT2LMHeadModel"), tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_dropout_is_refused(task):
    bridge = of_transformers("GPT2LMHeadModel")
    bridge.train()
    for call in (
        lambda: cl.head_outputs(bridge, task.questions["answer"].test),
        lambda: cl.analyze_heads(bridge, task),
        lambda: cl.ablate_heads(bridge, [0]).__enter__(),
    ):
        with pytest.raises(ValueError, match=r"got one in training mode.*call model.eval\(\)"):
            call()


def test_models_without_attention_are_refused(task):
    from transformer_lens.model_bridge.sources._bridge_builder import build_bridge_from_module
    from transformers import MambaConfig, MambaForCausalLM

    config = MambaConfig(vocab_size=40, hidden_size=16, num_hidden_layers=2, state_size=4)
    bridge = build_bridge_from_module(
        MambaForCausalLM(config).eval(), "MambaForCausalLM", hf_config=config
    )
    with pytest.raises((ValueError, TypeError), match="^model: expected"):
        cl.analyze_heads(bridge, task)


def test_groups_of_native_bridges_share_runs(task):
    from count01_lens.heads import group_runs
    from count01_lens.heads.hook_runner import HookRunner
    from count01_lens.heads.replacements import Replacement

    question = task.questions["answer"]
    for name, fields in itertools.islice(NATIVE.items(), 6):
        run = group_runs._road(
            HookRunner(native(**fields)), question.test, question.choices, Replacement("zero")
        )
        assert isinstance(run, group_runs.StreamRuns), name
