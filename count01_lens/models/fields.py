"""Fields of a HookedTransformerConfig: the words in which models are described.

Checkpoints hold them, whichever version of TransformerLens wrote them, and models are made of them.
Their names, meanings and defaults are those of TransformerLens 3.9.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch

DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in (torch.float32, torch.float64)}
SIZES = ("d_model", "n_heads", "d_head", "d_vocab", "n_ctx")
# What a config has unless something else is said. Others follow from sizes: see `completed`.
DEFAULTS: dict[str, Any] = {
    "NTK_by_parts_factor": 8.0, "NTK_by_parts_high_freq_factor": 4.0,
    "NTK_by_parts_low_freq_factor": 1.0, "NTK_original_ctx_len": 8192, "act_fn": "relu",
    "attention_dir": "causal", "attn_scores_soft_cap": -1.0, "default_prepend_bos": True,
    "device": "cpu", "eps": 1e-5, "init_mode": "gpt2", "init_weights": True,
    "model_name": "custom", "n_devices": 1, "normalization_type": "LN",
    "output_logits_soft_cap": -1.0, "positional_embedding_type": "standard", "rotary_base": 10000,
    "rotary_scaling_factor": 1.0, "yarn_attention_factor": 1.0, "yarn_beta_fast": 32.0,
    "yarn_beta_slow": 1.0, "yarn_factor": 1.0, "yarn_original_max_position_embeddings": 4096,
    "yarn_truncate": True,
    **dict.fromkeys((
        "attn_types", "checkpoint_index", "checkpoint_label_type", "checkpoint_value", "clip_qkv",
        "decoder_start_token_id", "experts_per_token", "n_key_value_heads", "num_experts",
        "original_architecture", "quantization_method", "relative_attention_max_distance",
        "relative_attention_num_buckets", "rotary_base_local", "rotary_dim", "seed",
        "tokenizer_name", "tokenizer_prepends_bos", "train_seq_length", "window_size",
    )),
    **dict.fromkeys((
        "attn_only", "final_rms", "from_checkpoint", "gated_mlp", "layer_norm_folding",
        "load_in_4bit", "norm_topk_prob", "parallel_attn_mlp", "post_embedding_ln",
        "rotary_adjacent_pairs", "scale_attn_by_inverse_layer_idx", "tie_word_embeddings",
        "trust_remote_code", "ungroup_grouped_query_attention", "use_NTK_by_parts_rope",
        "use_attention_sinks", "use_attn_in", "use_attn_result", "use_dynamic_ntk_rope",
        "use_hook_mlp_in", "use_hook_tokens", "use_local_attn", "use_logn_attn",
        "use_normalization_before_and_after", "use_qk_norm", "use_split_qkv_input",
        "use_yarn_rope", "uses_rms_norm", "yarn_global_attn_only",
    ), False),
}  # fmt: skip
# Those of the models of this library, but for their sizes.
PLAIN: dict[str, Any] = DEFAULTS | {
    "attn_only": True,
    "init_weights": False,
    "model_name": "count01",
    "n_layers": 1,
    "normalization_type": None,
    "tokenizer_prepends_bos": False,
}


def completed(given: Mapping[str, Any], defaults: Mapping[str, Any] = DEFAULTS) -> dict[str, Any]:
    """Add to some fields what follows from them, and defaults for the rest."""
    fields = {"n_heads": -1, "use_attn_scale": True, "dtype": torch.float32, **defaults, **given}
    if fields["n_heads"] == -1:
        fields["n_heads"] = fields["d_model"] // fields["d_head"]
    d_model, d_head, d_mlp = fields["d_model"], fields["d_head"], fields.get("d_mlp")
    if d_mlp is None:
        d_mlp = 4 * d_model
    per_layer = 4 * d_model * d_head * fields["n_heads"]
    if not fields["attn_only"]:
        per_layer += d_model * d_mlp * (2 + fields["gated_mlp"])
    scale = fields.get("attn_scale", -1.0)
    if fields["use_attn_scale"] and scale <= 0:
        scale = math.sqrt(d_head)
    outputs = fields.get("d_vocab_out", -1)
    return fields | {
        "d_mlp": d_mlp,
        "d_vocab_out": fields["d_vocab"] if outputs == -1 else outputs,
        "n_params": fields["n_layers"] * per_layer,
        "initializer_range": fields.get("initializer_range", 0.8 / math.sqrt(d_model)),
        "attn_scale": scale,
    }
