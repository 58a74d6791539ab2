import contextlib
import json
import os
import pickle
import stat
from pathlib import Path

import numpy as np
import pytest
import safetensors
import safetensors.torch
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from count01_lens.common import bundle
from count01_lens.common.bundle import Bundle, read_bundle, write_bundle
from count01_lens.counts.applies import why_not_counts
from count01_lens.counts.compact import compact_logits
from count01_lens.models.build import build_model
from count01_lens.models.checkpoints import (
    CheckpointError,
    checkpoint_info,
    example_file,
    example_model,
    load_checkpoint,
    save_checkpoint,
)
from count01_lens.models.config import ModelConfig
from count01_lens.models.handcrafted import minimal_model
from count01_lens.models.lens import state_of
from count01_lens.models.unpacking import INERT
from count01_lens.tasks.dataset import make_splits
from tests.lens_versions import KIND, made, needs_3

SMALL = ModelConfig(d_embed=4, n_heads=2, n_ctx=32)


@pytest.fixture
def saved(tmp_path) -> Path:
    return save_checkpoint(build_model(SMALL, seed=1), tmp_path / "checkpoint", info={"seed": 1})


def change_about(path: Path, **changes: object) -> None:
    """Change a file and make its checksum fit, as somebody who tampers with it would."""
    found = read_bundle(path, "checkpoint")
    write_bundle(path, Bundle("checkpoint", {**found.about, **changes}, found.tensors))


def change_config(path: Path, **changes: object) -> None:
    cfg = read_bundle(path, "checkpoint").about["hooked_transformer"]
    change_about(path, hooked_transformer={**cfg, **changes})


def change_weights(path: Path, change) -> None:
    found = read_bundle(path, "checkpoint")
    change(found.tensors)
    write_bundle(path, found)


@pytest.mark.parametrize(
    "model",
    [
        build_model(SMALL),
        build_model(dtype=torch.float64),
        minimal_model(),
        minimal_model(skip=False),
    ],
    ids=["small", "float64", "minimal", "fused"],
)
def test_a_model_comes_back_as_it_was(tmp_path, model):
    save_checkpoint(model, tmp_path / "checkpoint")
    again = load_checkpoint(tmp_path / "checkpoint")
    assert again.cfg.to_dict() == model.cfg.to_dict()
    assert again.state_dict().keys() == model.state_dict().keys()
    for name, tensor in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor)
    assert torch.equal(again("0110="), model("0110="))
    flags = {name: parameter.requires_grad for name, parameter in again.named_parameters()}
    assert flags == {name: p.requires_grad for name, p in model.named_parameters()}
    assert why_not_counts(again) is None


def test_a_users_own_model_can_be_saved(tmp_path):
    model = made(
        d_model=12, d_head=3, n_heads=4, n_layers=2, n_ctx=20, d_vocab=50, act_fn="gelu",
        seed=3, normalization_type="LN",
    )  # fmt: skip
    state = torch.random.get_rng_state()
    save_checkpoint(model, tmp_path / "own")
    again = load_checkpoint(tmp_path / "own")
    # Its seed is kept as a fact, and not acted on: loading leaves the random state alone.
    assert again.cfg.seed == 3
    assert torch.equal(torch.random.get_rng_state(), state)
    assert again.tokenizer is None
    tokens = torch.tensor([[1, 2, 3, 40]])
    assert torch.equal(again(tokens), model(tokens))


@pytest.mark.parametrize("name", ["seed-0", "seed-0.safetensors", "v1.5", "v1.5.safetensors"])
def test_the_suffix_may_be_given_or_not(tmp_path, name):
    path = save_checkpoint(build_model(SMALL), tmp_path / name)
    stem = name.removesuffix(".safetensors")
    assert path == tmp_path / f"{stem}.safetensors"
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    for way in (path, tmp_path / stem, str(tmp_path / stem)):
        assert load_checkpoint(way).cfg.n_heads == 2
        assert checkpoint_info(way)["hooked_transformer"]["n_heads"] == 2


@pytest.mark.parametrize("path", ["", ".", "..", "/"])
def test_a_path_that_names_no_file_is_refused(path):
    model = build_model(SMALL)
    for call in (load_checkpoint, checkpoint_info, lambda path: save_checkpoint(model, path)):
        with pytest.raises(CheckpointError, match="expected the path of a file, got that of a dir"):
            call(path)


@needs_3("the state_dict of a bridge has other names; see the next test")
def test_bare_transformer_lens_reads_the_file(saved):
    from transformer_lens import HookedTransformer, HookedTransformerConfig

    with safetensors.safe_open(saved, "pt") as file:
        config = json.loads(file.metadata()["about"])["hooked_transformer"]
    config["dtype"] = torch.float32
    model = HookedTransformer(HookedTransformerConfig(**config))
    model.load_state_dict(safetensors.torch.load_file(saved))
    tokens = torch.tensor([[0, 1, 2, 4]])
    assert torch.equal(model(tokens), load_checkpoint(saved)(tokens))


def test_info_is_kept(saved):
    info = checkpoint_info(saved)
    assert info["info"] == {"seed": 1}
    assert set(info["versions"]) == {"count01-lens", "torch", "numpy", "transformer-lens"}


def test_equal_models_give_equal_bytes_and_readable_modes(tmp_path):
    one, two = (save_checkpoint(build_model(SMALL), tmp_path / name) for name in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()
    assert stat.S_IMODE(one.stat().st_mode) & 0o444 == 0o444


def test_a_second_save_replaces_the_first(saved):
    save_checkpoint(build_model(SMALL, seed=2), saved)
    assert torch.equal(load_checkpoint(saved).W_E, build_model(SMALL, seed=2).W_E)
    assert list(saved.parent.iterdir()) == [saved]


def test_a_crash_at_any_point_leaves_the_old_checkpoint_or_the_new_one(tmp_path, monkeypatch):
    """Stop before each single file operation, as a kill would; the loader must find a whole one."""

    class Killed(BaseException):
        pass

    real = {name: getattr(os, name) for name in ("replace", "fsync", "open")}
    old, new, third = (build_model(SMALL, seed=seed) for seed in (1, 2, 3))
    seen = []
    for stop_at in range(1, 60):
        path = save_checkpoint(old, tmp_path / str(stop_at) / "checkpoint")
        calls = 0

        def stopping(name, stop_at=stop_at):
            def operation(*arguments, **options):
                nonlocal calls
                calls += 1
                if calls >= stop_at:
                    raise Killed
                return real[name](*arguments, **options)

            return operation

        try:
            with monkeypatch.context() as patch:
                for name in real:
                    patch.setattr(os, name, stopping(name))
                # A killed process does not tidy up either.
                patch.setattr(Path, "unlink", lambda *arguments, **options: None)
                save_checkpoint(new, path)
        except Killed:
            loaded = load_checkpoint(path).W_E
            seen.append("old" if torch.equal(loaded, old.W_E) else "new")
            if seen[-1] == "new":
                assert torch.equal(loaded, new.W_E)
            # A second crash, in a save that finds what the first one left, does no harm either.
            calls = max(0, stop_at - 2)
            with monkeypatch.context() as patch, contextlib.suppress(Killed):
                for name in real:
                    patch.setattr(os, name, stopping(name))
                patch.setattr(Path, "unlink", lambda *arguments, **options: None)
                save_checkpoint(third, path)
            assert any(torch.equal(load_checkpoint(path).W_E, m.W_E) for m in (old, new, third))
            # And the next save goes through, and leaves nothing else.
            save_checkpoint(old, path)
            assert torch.equal(load_checkpoint(path).W_E, old.W_E)
            assert list(path.parent.iterdir()) == [path]
        else:
            break
    assert seen == sorted(seen, reverse=True)  # old, old, ..., new, new
    assert {"old", "new"} == set(seen)
    assert len(seen) == 5  # open and flush, rename, open and flush the directory


def test_a_crash_in_the_first_save_leaves_nothing_that_loads_and_no_obstacle(tmp_path, monkeypatch):
    path = tmp_path / "first"
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", lambda *arguments: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            save_checkpoint(build_model(SMALL), path)
    with pytest.raises(CheckpointError, match=r"first\.safetensors: no such file"):
        load_checkpoint(path)
    save_checkpoint(build_model(SMALL), path)
    assert load_checkpoint(path).cfg.n_heads == 2


def test_leftovers_of_a_killed_save_are_removed_and_other_files_are_not(saved):
    leftover = saved.with_name(f".count01-tmp-0123456789abcdef-{saved.name}")
    others = [saved.with_name(".count01-tmp-0123456789abcdef-other"), saved.with_name("thesis.tex")]
    for path in (leftover, *others):
        path.write_text("half")
    save_checkpoint(build_model(SMALL, seed=2), saved)
    assert sorted(saved.parent.iterdir()) == sorted([saved, *others])


def test_truncation_is_noticed(saved):
    original = saved.read_bytes()
    for length in (0, 1, 8, len(original) // 2, len(original) - 1):
        saved.write_bytes(original[:length])
        with pytest.raises(CheckpointError, match=r"checkpoint\.safetensors: .*(cut off|expected)"):
            load_checkpoint(saved)
    saved.write_bytes(original)
    assert load_checkpoint(saved).cfg.n_heads == 2


@given(st.data())
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_flipped_bit_anywhere_is_noticed(saved, data):
    original = saved.read_bytes()
    position = data.draw(st.integers(0, len(original) - 1))
    changed = bytearray(original)
    changed[position] ^= 1 << data.draw(st.integers(0, 7))
    saved.write_bytes(changed)
    try:
        with pytest.raises(CheckpointError) as caught:
            load_checkpoint(saved)
        assert str(saved) in str(caught.value)
    finally:
        saved.write_bytes(original)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.unlink(), r"checkpoint\.safetensors: no such file; expected a file"),
        (lambda path: path.write_text("[]"), r"checkpoint\.safetensors: .*cut off"),
        (lambda path: path.write_text("{" * 10**5), "expected a file of kind 'checkpoint', which"),
        (lambda path: path.write_bytes(bytes(100)), "expected a file of kind 'checkpoint', which"),
        (
            lambda path: write_bundle(path, Bundle("analysis", {}, {})),
            "expected a file of kind 'checkpoint', got one of kind 'analysis'",
        ),
        (
            lambda path: write_bundle(path, Bundle("checkpoint", {}, {})),
            "expected an object 'hooked_transformer', got None$",
        ),
        (
            lambda path: safetensors.torch.save_file(safetensors.torch.load_file(path), path),
            "its metadata are not those of a bundle",
        ),
        (
            lambda path: change_config(path, d_model=6),
            r"expected .*6.*got .*8",
        ),
        (lambda path: change_config(path, d_model=10**12), r"expected .*1000000000000"),
        (lambda path: change_config(path, n_layers=2), "do not fit cfg"),
        (lambda path: change_config(path, n_layers=10**12), "n_layers = 1000000000000 is not"),
        (lambda path: change_config(path, n_layers="1"), "n_layers = '1' is not usable"),
        (lambda path: change_config(path, n_layers=0), "n_layers = 0 is not usable"),
        (lambda path: change_config(path, dtype="float64"), "expected torch.float64"),
        (
            lambda path: change_config(path, dtype="int8"),
            r"expected dtype \['float32', 'float64'\], got 'int8'$",
        ),
        (lambda path: change_config(path, d_head="2"), "no model can be made"),
        (lambda path: change_config(path, colour="red"), r"unknown \['colour'\]"),
        (lambda path: change_weights(path, lambda s: s["embed.W_E"].fill_(torch.nan)), "64 NaN"),
        (
            lambda path: change_weights(path, lambda s: s["unembed.b_U"].fill_(torch.inf)),
            "b_U has 8",
        ),
        (lambda path: change_weights(path, lambda s: s.pop("embed.W_E")), "embed.W_E"),
        (
            lambda path: change_weights(path, lambda s: s.update(extra=torch.zeros(1))),
            "do not fit cfg: extra$",
        ),
        (
            lambda path: change_weights(
                path, lambda s: s.update({f"x{i}": s["unembed.b_U"] + i for i in range(7)})
            ),
            "do not fit cfg: x0, x1, x2, x3, x4$",
        ),
        (
            lambda path: change_about(path, info=3),
            r"checkpoint\.safetensors: expected an object 'info', got 3$",
        ),
        (
            lambda path: change_about(path, versions=[1]),
            r"checkpoint\.safetensors: expected an object 'versions', got \[1\]$",
        ),
        (
            lambda path: change_about(path, hooked_transformer="x"),
            r"checkpoint\.safetensors: expected an object 'hooked_transformer', got 'x'$",
        ),
    ],
)
def test_damaged_checkpoints_are_rejected_with_file_and_reason(saved, damage, message):
    damage(saved)
    with pytest.raises(CheckpointError, match=message) as caught:
        load_checkpoint(saved)
    assert str(saved) in str(caught.value)


def test_every_kind_of_damage_to_a_file_is_named(saved):
    whole = saved.read_bytes()
    saved.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(saved)
    assert str(caught.value) == (
        f"{saved}: its content does not fit its checksum; it was changed: take another copy, or "
        "make it again"
    )
    saved.unlink()
    saved.mkdir()
    with pytest.raises(CheckpointError, match=r"safetensors: cannot be read \(.+\); expected"):
        load_checkpoint(saved)


def test_a_file_of_a_newer_format_is_not_guessed_at(saved, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(bundle, "FORMAT", 2)
        save_checkpoint(build_model(SMALL), saved.with_name("newer"))
    newer = saved.with_name("newer.safetensors")
    with pytest.raises(CheckpointError, match="written in format '2', this version reads 1; inst"):
        load_checkpoint(newer)
    with pytest.raises(ValueError, match="written in format '2'.* choose another path"):
        save_checkpoint(build_model(SMALL), newer)


def test_weights_may_be_larger_than_any_json(tmp_path, monkeypatch):
    monkeypatch.setattr(bundle, "LARGEST_HEADER", 20_000)
    large = build_model(ModelConfig(d_embed=64, n_heads=4))
    path = save_checkpoint(large, tmp_path / "large")
    assert path.stat().st_size > 40_000
    assert torch.equal(load_checkpoint(path).W_E, large.W_E)
    message = "info and cfg: expected JSON values only .*in 20000 bytes, got .*; keep fewer"
    with pytest.raises(ValueError, match=message):
        save_checkpoint(large, tmp_path / "too large", info={"text": "x" * 20_000})
    assert [file.name for file in tmp_path.iterdir()] == ["large.safetensors"]


def test_a_path_is_made_and_a_config_without_frozen_parameters_loads(tmp_path):
    path = save_checkpoint(build_model(SMALL), tmp_path / "a" / "b")
    found = read_bundle(path, "checkpoint")
    about = dict(found.about)
    assert about.pop("frozen_parameters") == ["pos_embed.W_pos"]
    write_bundle(path, Bundle("checkpoint", about, found.tensors))
    assert all(parameter.requires_grad for parameter in load_checkpoint(path).parameters())


def test_what_would_act_beyond_the_model_is_stored_but_not_acted_on(saved):
    change_config(saved, device="cuda", n_devices=3, seed=17, tokenizer_name="gpt2")
    before = torch.random.get_rng_state()
    model = load_checkpoint(saved)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert (model.cfg.device, model.cfg.n_devices) == ("cpu", 1)
    assert (model.cfg.seed, model.cfg.tokenizer_name) == (17, "gpt2")


def test_weights_say_that_they_are_of_torch(saved):
    """As those of other tools, which look at it."""
    with safetensors.safe_open(saved, "pt") as file:
        assert file.metadata()["format"] == "pt"
        assert set(file.keys()) == set(state_of(load_checkpoint(saved)))


@pytest.mark.parametrize("function", [load_checkpoint, checkpoint_info])
def test_errors_of_parsing_name_the_file(saved, function):
    saved.write_bytes(b"\x02" + bytes(7) + b"[]")
    with pytest.raises(
        CheckpointError, match=r"checkpoint\.safetensors: .*an object as its header"
    ):
        function(saved)


def test_a_damaged_header_names_the_file(saved):
    saved.write_bytes(b"\x05" + bytes(20))
    with pytest.raises(CheckpointError, match=r"checkpoint\.safetensors: expected a file of kind"):
        load_checkpoint(saved)


def test_values_of_numpy_and_devices_in_cfg_are_written_plainly(tmp_path):
    model = build_model(SMALL)
    model.cfg.initializer_range = np.float32(0.5)
    model.cfg.device = torch.device("cpu")
    save_checkpoint(model, tmp_path / "model")
    cfg = checkpoint_info(tmp_path / "model")["hooked_transformer"]
    assert (cfg["initializer_range"], cfg["device"]) == (0.5, "cpu")


def test_nothing_is_ever_unpickled(saved):
    class Trap:
        def __reduce__(self):
            return (os.mkdir, (str(saved.with_name("trapped")),))

    for data in (pickle.dumps(Trap()), bytes(8) + pickle.dumps(Trap())):
        saved.write_bytes(data)
        with pytest.raises(CheckpointError, match=r"checkpoint\.safetensors: "):
            load_checkpoint(saved)
    assert not saved.with_name("trapped").exists()


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(CheckpointError, match=r"nowhere\.safetensors: no such file"):
        load_checkpoint(tmp_path / "nowhere")
    (tmp_path / "directory").mkdir()
    with pytest.raises(CheckpointError, match=r"directory\.safetensors: no such file"):
        load_checkpoint(tmp_path / "directory")


def test_what_is_no_checkpoint_is_not_overwritten(tmp_path):
    path = tmp_path / "mine.safetensors"
    safetensors.torch.save_file({"weights": torch.ones(3)}, tmp_path / "weights")
    write_bundle(tmp_path / "analysis", Bundle("analysis", {}, {}))
    contents = [b"mine", b"", (tmp_path / "weights").read_bytes()]
    for content in (*contents, (tmp_path / "analysis").read_bytes()):
        path.write_bytes(content)
        for name in ("mine", "mine.safetensors"):
            with pytest.raises(ValueError, match=r"mine\.safetensors: .* choose another path$"):
                save_checkpoint(build_model(SMALL), tmp_path / name)
        assert path.read_bytes() == content
    path.unlink()
    for make in (path.mkdir, lambda: os.mkfifo(path), lambda: path.symlink_to("nowhere")):
        make()
        with pytest.raises(ValueError, match=r"mine\.safetensors: .* choose another path$"):
            save_checkpoint(build_model(SMALL), path)
        path.rmdir() if path.is_dir() else path.unlink()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["analysis", "weights"]


def test_a_damaged_checkpoint_is_not_overwritten(saved):
    """It may be the only copy; whoever wants to save there deletes it."""
    data = saved.read_bytes()[:-1]
    saved.write_bytes(data)
    with pytest.raises(ValueError, match="cut off.*; to save here, delete it or choose another"):
        save_checkpoint(build_model(SMALL), saved)
    assert saved.read_bytes() == data


def test_a_config_with_the_fewest_fields_loads(saved):
    """Fields that a newer TransformerLens no longer has may be left out, but for a few."""
    config = checkpoint_info(saved)
    needed = ("d_model", "n_layers", "dtype", *INERT)
    others = ("n_ctx", "d_head", "n_heads", "d_vocab", "attn_only", "normalization_type")
    cfg = {name: config["hooked_transformer"][name] for name in (*needed, *others)}
    cfg["use_attn_scale"] = config["hooked_transformer"]["use_attn_scale"]
    change_about(saved, hooked_transformer=cfg)
    expected = compact_logits(build_model(SMALL, seed=1), [[1, 2, 3]])
    loaded = load_checkpoint(saved)
    assert torch.equal(compact_logits(loaded, [[1, 2, 3]]), expected)
    assert loaded.cfg.init_weights is True
    for name in needed:
        change_about(saved, hooked_transformer={k: v for k, v in cfg.items() if k != name})
        with pytest.raises(CheckpointError, match="unknown .* or too few"):
            load_checkpoint(saved)


def test_what_cannot_be_loaded_is_not_saved(tmp_path):
    model = build_model(SMALL)
    model.W_E.data[0, 0] = torch.nan
    with pytest.raises(ValueError, match=r"model: embed\.W_E has 1 NaN or infinite values"):
        save_checkpoint(model, tmp_path / "nan")
    with pytest.raises(ValueError, match="expected JSON values only"):
        save_checkpoint(build_model(SMALL), tmp_path / "info", info={"model": object()})
    with pytest.raises(
        ValueError,
        match=r"expected weights of dtype float32 or float64, got float16; convert it with "
        r"model\.to\(torch\.float32\)$",
    ):
        save_checkpoint(build_model(SMALL).to(torch.float16), tmp_path / "half")
    with pytest.raises(TypeError, match=f"expected a {KIND}, got Linear"):
        save_checkpoint(torch.nn.Linear(2, 2), tmp_path / "linear")
    assert list(tmp_path.iterdir()) == []


def test_the_example_is_a_trained_model_that_counts():
    model, test = example_model(), make_splits().test
    logits = compact_logits(model, test)
    assert float(((logits[:, 5] > logits[:, 6]) == test.labels).double().mean()) >= 0.99
    assert (compact_logits(model, test, "answer").argmax(-1) == 7).double().mean() >= 0.99
    assert (model.cfg.n_heads, model.cfg.d_head) == (16, 2)
    info = checkpoint_info(example_file("accurate"))["info"]
    assert info["training"]["epoch"] == 100


@pytest.mark.parametrize("convert", ["double", "to"])
def test_the_dtype_of_the_weights_counts_and_not_that_of_cfg(tmp_path, convert):
    model = build_model(SMALL)
    model = model.double() if convert == "double" else model.to(torch.float64)
    save_checkpoint(model, tmp_path / "checkpoint")
    again = load_checkpoint(tmp_path / "checkpoint")
    assert again.W_E.dtype == again.cfg.dtype == torch.float64
    assert torch.equal(again.W_E, model.W_E)


def test_half_or_mixed_weights_leave_the_old_checkpoint(saved):
    before = saved.read_bytes()
    half, mixed = build_model(SMALL).half(), build_model(SMALL)
    mixed.unembed.double()
    for model, got in ((half, "float16"), (mixed, "float32, float64")):
        with pytest.raises(ValueError, match=f"of dtype float32 or float64, got {got};"):
            save_checkpoint(model, saved)
    assert saved.read_bytes() == before


def test_the_default_dtype_of_torch_does_not_matter(saved, tmp_path):
    torch.set_default_dtype(torch.float64)
    try:
        save_checkpoint(build_model(SMALL), tmp_path / "other")
        assert load_checkpoint(saved).W_E.dtype == torch.float32
    finally:
        torch.set_default_dtype(torch.float32)
    assert load_checkpoint(tmp_path / "other").W_E.dtype == torch.float32


@pytest.mark.parametrize(
    "changes",
    [
        {"dtype": []},
        {"positional_embedding_type": "x"},
        {"positional_embedding_type": None},
        {"clip_qkv": "x"},
        {"attn_scores_soft_cap": "high"},
        {"n_heads": None},
    ],
)
def test_impossible_values_of_cfg_are_our_error(saved, changes):
    change_config(saved, **changes)
    with pytest.raises(CheckpointError, match=r"checkpoint\.safetensors: cfg: "):
        load_checkpoint(saved)


@pytest.mark.parametrize("value", [None, 3])
def test_impossible_values_beside_cfg_are_our_error(saved, value):
    change_about(saved, frozen_parameters=value)
    with pytest.raises(CheckpointError, match="frozen_parameters: expected a list"):
        load_checkpoint(saved)


def test_odd_arguments(saved):
    with pytest.raises(CheckpointError, match="cannot be read"):
        load_checkpoint("a\0b")
    for info in ([1, 2], "abc"):
        with pytest.raises(TypeError, match="info: expected a dict of JSON values"):
            save_checkpoint(build_model(SMALL), saved, info=info)


def test_what_a_file_does_not_hold_is_not_saved(tmp_path):
    model = build_model()
    model.blocks[0].attn.attn_scale = 3.0
    with pytest.raises(ValueError, match="model: expected one that its cfg and its weights descri"):
        save_checkpoint(model, tmp_path / "model")
    model = build_model()
    model.unembed.forward = lambda residual: residual
    with pytest.raises(ValueError, match="which a checkpoint does not hold; put them back"):
        save_checkpoint(model, tmp_path / "model")
    assert not list(tmp_path.iterdir())
