"""Checkpoints as each version of TransformerLens writes them, with what the models in them say.

    python -m tests.models.files_of_versions

writes those of the installed version into `tests/models/files`. Tests read all of them with
whichever version is installed.
"""

from pathlib import Path

import torch

import count01_lens as cl
from count01_lens.models.fingerprint import fingerprint
from count01_lens.models.lens import has_bridges, load_state, make_model, state_of

FILES = Path(__file__).parent / "files"
TOKENS = torch.tensor([[0, 1, 2, 2, 3, 1, 4], [4, 4, 1, 0, 3, 2, 2]])
COMMON = dict(
    d_model=6, d_head=2, n_heads=4, n_layers=2, n_ctx=9, d_vocab=5, d_mlp=10, device="cpu", seed=1
)
KINDS = {
    "plain": dict(n_layers=1, attn_only=True, normalization_type=None, use_attn_scale=False),
    "norms_and_mlps": dict(act_fn="gelu", normalization_type="LN"),
    "grouped_heads": dict(act_fn="relu", normalization_type="RMS", n_key_value_heads=2),
    "both_directions": dict(act_fn="gelu_new", attention_dir="bidirectional", d_vocab_out=3),
    "norms_without_weights": dict(
        act_fn="silu", normalization_type="LNPre", use_attn_scale=False, dtype=torch.float64
    ),
}


def model_of(kind: str) -> object:
    """A model that its kind alone decides, whatever draws its first weights."""
    model = make_model({**COMMON, **KINDS[kind]})
    generator = torch.Generator().manual_seed(len(kind))
    state = {
        name: torch.randn(tensor.shape, generator=generator, dtype=torch.float64).to(tensor)
        if tensor.is_floating_point() and tensor.ndim
        else tensor
        for name, tensor in sorted(state_of(model).items())
    }
    load_state(model, state)
    return model


def main() -> None:
    """Write the files of the installed version."""
    FILES.mkdir(exist_ok=True)
    for kind in KINDS:
        model = model_of(kind)
        with torch.no_grad():
            info = {"logits": model(TOKENS).double().tolist(), "fingerprint": fingerprint(model)}
        cl.save_checkpoint(model, FILES / f"{kind}_by_{4 if has_bridges() else 3}", info=info)


if __name__ == "__main__":
    main()
