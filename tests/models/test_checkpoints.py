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
from transformer_lens import HookedTransformer, HookedTransformerConfig

from count01_lens.common.storage import LARGEST_JSON, sha256
from count01_lens.counts.applies import why_not_counts
from count01_lens.counts.compact import compact_logits
from count01_lens.models import checkpoints
from count01_lens.models.build import build_model
from count01_lens.models.checkpoints import (
    _INERT,
    CONFIG,
    MANIFEST,
    WEIGHTS,
    CheckpointError,
    checkpoint_info,
    example_model,
    load_checkpoint,
    save_checkpoint,
)
from count01_lens.models.config import ModelConfig
from count01_lens.models.handcrafted import minimal_model
from count01_lens.tasks.dataset import make_splits

SMALL = ModelConfig(d_embed=4, n_heads=2, n_ctx=32)


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "checkpoint"
    save_checkpoint(build_model(SMALL, seed=1), path, info={"seed": 1})
    return path


def reseal(path: Path) -> None:
    """Make the manifest fit the files, as somebody who tampers with them would."""
    manifest = json.loads((path / MANIFEST).read_text())
    for name, entry in manifest["files"].items():
        data = (path / name).read_bytes()
        entry.update(sha256=sha256(data), bytes=len(data))
    (path / MANIFEST).write_text(json.dumps(manifest))


def change_config(path: Path, **changes: object) -> None:
    config = json.loads((path / CONFIG).read_text())
    config["hooked_transformer"].update(changes)
    (path / CONFIG).write_text(json.dumps(config))
    reseal(path)


def change_entry(path: Path, name: str, value: object) -> None:
    config = json.loads((path / CONFIG).read_text())
    (path / CONFIG).write_text(json.dumps(config | {name: value}))
    reseal(path)


def change_weights(path: Path, change) -> None:
    state = safetensors.torch.load((path / WEIGHTS).read_bytes())
    change(state)
    (path / WEIGHTS).write_bytes(safetensors.torch.save(state))
    reseal(path)


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
    config = HookedTransformerConfig(
        d_model=12, d_head=3, n_heads=4, n_layers=2, n_ctx=20, d_vocab=50, act_fn="gelu",
        seed=3, device="cpu", normalization_type="LN",
    )  # fmt: skip
    model = HookedTransformer(config)
    state = torch.random.get_rng_state()
    save_checkpoint(model, tmp_path / "own")
    again = load_checkpoint(tmp_path / "own")
    # Its seed is kept as a fact, and not acted on: loading leaves the random state alone.
    assert again.cfg.seed == 3
    assert torch.equal(torch.random.get_rng_state(), state)
    assert again.tokenizer is None
    tokens = torch.tensor([[1, 2, 3, 40]])
    assert torch.equal(again(tokens), model(tokens))


def test_bare_transformer_lens_reads_the_files(saved):
    config = json.loads((saved / CONFIG).read_text())["hooked_transformer"]
    config["dtype"] = torch.float32
    model = HookedTransformer(HookedTransformerConfig(**config))
    model.load_state_dict(safetensors.torch.load_file(saved / WEIGHTS))
    tokens = torch.tensor([[0, 1, 2, 4]])
    assert torch.equal(model(tokens), load_checkpoint(saved)(tokens))


def test_info_is_kept(saved):
    info = checkpoint_info(saved)
    assert info["info"] == {"seed": 1}
    assert set(info["versions"]) == {"count01-lens", "torch", "numpy", "transformer-lens"}


def test_equal_models_give_equal_bytes_and_readable_modes(tmp_path):
    for name in ("one", "two"):
        save_checkpoint(build_model(SMALL), tmp_path / name)
    for file in (CONFIG, WEIGHTS, MANIFEST):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()
        assert stat.S_IMODE((tmp_path / "one" / file).stat().st_mode) & 0o444 == 0o444


def test_a_second_save_replaces_the_first(saved):
    save_checkpoint(build_model(SMALL, seed=2), saved)
    assert torch.equal(load_checkpoint(saved).W_E, build_model(SMALL, seed=2).W_E)
    visible = {path.name for path in saved.iterdir()} - {".lock"}
    assert visible == {CONFIG, WEIGHTS, MANIFEST}


def test_a_crash_at_any_point_leaves_the_old_checkpoint_or_the_new_one(tmp_path, monkeypatch):
    """Stop before each single file operation, as a kill would; the loader must find a whole one."""

    class Killed(BaseException):
        pass

    real = {name: getattr(os, name) for name in ("replace", "fsync", "open")}
    old, new, third = (build_model(SMALL, seed=seed) for seed in (1, 2, 3))
    seen = []
    for stop_at in range(1, 60):
        path = tmp_path / str(stop_at)
        save_checkpoint(old, path)
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
            calls = max(0, stop_at - 4)
            with monkeypatch.context() as patch, contextlib.suppress(Killed):
                for name in real:
                    patch.setattr(os, name, stopping(name))
                patch.setattr(Path, "unlink", lambda *arguments, **options: None)
                save_checkpoint(third, path)
            assert any(torch.equal(load_checkpoint(path).W_E, m.W_E) for m in (old, new, third))
            # And the next save goes through.
            save_checkpoint(old, path)
            assert torch.equal(load_checkpoint(path).W_E, old.W_E)
        else:
            break
    assert seen == sorted(seen, reverse=True)  # old, old, ..., new, new
    assert {"old", "new"} == set(seen)
    assert len(seen) > 8


def test_a_crash_in_the_first_save_leaves_nothing_that_loads_and_no_obstacle(tmp_path, monkeypatch):
    path = tmp_path / "first"
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", lambda *arguments: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            save_checkpoint(build_model(SMALL), path)
    with pytest.raises(CheckpointError, match=r"manifest\.json: missing"):
        load_checkpoint(path)
    save_checkpoint(build_model(SMALL), path)
    assert load_checkpoint(path).cfg.n_heads == 2


def test_truncation_is_noticed(saved):
    for name in (CONFIG, WEIGHTS):
        original = (saved / name).read_bytes()
        for length in (0, 1, len(original) // 2, len(original) - 1):
            (saved / name).write_bytes(original[:length])
            with pytest.raises(CheckpointError, match=rf"{name}: expected {len(original)} bytes"):
                load_checkpoint(saved)
        (saved / name).write_bytes(original)
    assert load_checkpoint(saved).cfg.n_heads == 2


@given(st.data())
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_flipped_bit_anywhere_is_noticed(saved, data):
    name = data.draw(st.sampled_from([CONFIG, WEIGHTS, MANIFEST]))
    original = (saved / name).read_bytes()
    position = data.draw(st.integers(0, len(original) - 1))
    changed = bytearray(original)
    changed[position] ^= 1 << data.draw(st.integers(0, 7))
    (saved / name).write_bytes(changed)
    try:
        load_checkpoint(saved)
    except CheckpointError as error:
        assert str(saved) in str(error)
    else:
        # A flip may turn one kind of white space between the manifest's values into another.
        assert name == MANIFEST
        assert json.loads(changed) == json.loads(original)
    finally:
        (saved / name).write_bytes(original)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: (path / WEIGHTS).unlink(), r"model\.safetensors: missing"),
        (lambda path: (path / CONFIG).unlink(), r"config\.json: missing"),
        (lambda path: (path / MANIFEST).unlink(), r"manifest\.json: missing"),
        (lambda path: (path / MANIFEST).write_text("[]"), "expected a JSON object, got list"),
        (lambda path: (path / MANIFEST).write_text("{}"), "expected a format number, got None"),
        (
            lambda path: (path / MANIFEST).write_text('{"format": true}'),
            "expected a format number, got True$",
        ),
        (
            lambda path: (path / MANIFEST).write_text('{"format": 0}'),
            "expected a format number, got 0$",
        ),
        (lambda path: (path / MANIFEST).write_text("{"), "not valid JSON"),
        (lambda path: (path / MANIFEST).write_text("[" * 10**5), "not valid JSON"),
        (lambda path: (path / MANIFEST).write_text('{"format": 1}'), "expected entries for"),
        (
            lambda path: (path / MANIFEST).write_text('{"format": 2, "files": {}}'),
            "written in format 2, this version reads up to 1; update",
        ),
        (
            lambda path: (path / MANIFEST).write_text(
                '{"format": 1, "files": {"config.json": 3, "model.safetensors": 4}}'
            ),
            r"expected sha256 and bytes of config\.json, got 3$",
        ),
        (
            lambda path: (path / MANIFEST).write_text(
                (path / MANIFEST).read_text().replace(WEIGHTS, "../../secret")
            ),
            "expected entries for",
        ),
        (
            lambda path: change_config(path, d_model=6),
            r"expected .*6.*got .*8",
        ),
        (lambda path: change_config(path, d_model=10**12), r"expected .*1000000000000"),
        (lambda path: change_config(path, n_layers=2), "do not fit config.json"),
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
            "do not fit config.json: extra$",
        ),
        (
            lambda path: change_weights(
                path, lambda s: s.update({f"x{i}": s["unembed.b_U"] + i for i in range(7)})
            ),
            "do not fit config.json: x0, x1, x2, x3, x4$",
        ),
        (
            lambda path: change_entry(path, "info", 3),
            r"config\.json: expected an object 'info', got 3$",
        ),
        (
            lambda path: change_entry(path, "versions", [1]),
            r"config\.json: expected an object 'versions', got \[1\]$",
        ),
        (
            lambda path: change_entry(path, "hooked_transformer", "x"),
            r"config\.json: expected an object 'hooked_transformer', got 'x'$",
        ),
        (
            lambda path: (path / CONFIG).write_text("{") and reseal(path),
            r"config\.json: not valid JSON",
        ),
    ],
)
def test_damaged_checkpoints_are_rejected_with_file_and_reason(saved, damage, message):
    damage(saved)
    with pytest.raises(CheckpointError, match=message) as caught:
        load_checkpoint(saved)
    assert str(saved) in str(caught.value)


def test_every_kind_of_damage_to_a_file_is_named(saved):
    whole = (saved / WEIGHTS).read_bytes()
    (saved / WEIGHTS).write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(saved)
    assert str(caught.value) == (
        f"{saved / WEIGHTS}: its SHA-256 sum does not fit the manifest; it was damaged"
    )
    (saved / WEIGHTS).unlink()
    (saved / WEIGHTS).mkdir()
    manifest = json.loads((saved / MANIFEST).read_text())
    manifest["files"][WEIGHTS]["bytes"] = (saved / WEIGHTS).stat().st_size
    (saved / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(CheckpointError, match=r"safetensors: cannot be read \(.+\)$"):
        load_checkpoint(saved)


@pytest.mark.parametrize("name", [CONFIG, MANIFEST])
def test_a_huge_json_file_is_not_read(saved, name):
    with (saved / name).open("ab") as file:
        file.truncate(LARGEST_JSON + 1)
    if name == CONFIG:
        manifest = json.loads((saved / MANIFEST).read_text())
        manifest["files"][CONFIG] = {"bytes": LARGEST_JSON + 1, "sha256": "0" * 64}
        (saved / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(CheckpointError, match=r"json: cannot be read \(.*10000000"):
        load_checkpoint(saved)


def test_weights_may_be_larger_than_any_json(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "LARGEST_JSON", 20_000)
    large = build_model(ModelConfig(d_embed=64, n_heads=4))
    save_checkpoint(large, tmp_path / "large")
    assert (tmp_path / "large" / WEIGHTS).stat().st_size > 40_000
    assert torch.equal(load_checkpoint(tmp_path / "large").W_E, large.W_E)
    size = (tmp_path / "large" / CONFIG).stat().st_size
    monkeypatch.setattr(checkpoints, "LARGEST_JSON", size)
    save_checkpoint(large, tmp_path / "exactly")
    monkeypatch.setattr(checkpoints, "LARGEST_JSON", size - 1)
    message = f"info and cfg: expected at most {size - 1} bytes as JSON, got {size}; keep large"
    with pytest.raises(ValueError, match=message):
        save_checkpoint(large, tmp_path / "too large")


def test_a_new_file_of_another_size_does_not_hide_the_old_one(saved):
    """What a save that never came to its manifest has left."""
    (saved / (WEIGHTS + ".new")).write_bytes(b"half")
    assert torch.equal(load_checkpoint(saved).W_E, build_model(SMALL, seed=1).W_E)
    save_checkpoint(build_model(SMALL, seed=2), saved)
    assert torch.equal(load_checkpoint(saved).W_E, build_model(SMALL, seed=2).W_E)
    assert sorted(path.name for path in saved.iterdir()) == sorted(
        [".lock", CONFIG, MANIFEST, WEIGHTS]
    )


def test_a_checkpoint_that_lost_its_lock_file_may_be_replaced(saved):
    (saved / ".lock").unlink()
    save_checkpoint(build_model(SMALL, seed=2), saved)
    assert torch.equal(load_checkpoint(saved).W_E, build_model(SMALL, seed=2).W_E)


def test_a_save_that_came_to_its_manifest_is_finished_by_the_next(saved, tmp_path):
    newer = tmp_path / "newer"
    save_checkpoint(build_model(SMALL, seed=2), newer)
    for name in (CONFIG, WEIGHTS):
        (newer / name).rename(saved / (name + ".new"))
    (newer / MANIFEST).replace(saved / MANIFEST)
    checkpoints._finish_interrupted_save(saved)
    assert not (saved / (WEIGHTS + ".new")).exists()
    assert torch.equal(load_checkpoint(saved).W_E, build_model(SMALL, seed=2).W_E)


def test_a_path_is_made_and_a_config_without_frozen_parameters_loads(tmp_path):
    path = tmp_path / "a" / "b"
    save_checkpoint(build_model(SMALL), path)
    config = json.loads((path / CONFIG).read_text())
    assert config.pop("frozen_parameters") == ["pos_embed.W_pos"]
    (path / CONFIG).write_text(json.dumps(config))
    reseal(path)
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
    with safetensors.safe_open(saved / WEIGHTS, "pt") as file:
        assert file.metadata() == {"format": "pt"}


@pytest.mark.parametrize("function", [load_checkpoint, checkpoint_info])
def test_errors_of_parsing_name_the_file(saved, function):
    (saved / CONFIG).write_text("[]")
    reseal(saved)
    with pytest.raises(CheckpointError, match=r"checkpoint/config\.json: expected a JSON object"):
        function(saved)


def test_a_damaged_header_names_the_file(saved):
    (saved / WEIGHTS).write_bytes(b"\x05" + bytes(20))
    reseal(saved)
    with pytest.raises(CheckpointError, match=r"checkpoint/model\.safetensors: not a valid"):
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
            return (os.mkdir, (str(saved / "trapped"),))

    (saved / WEIGHTS).write_bytes(pickle.dumps(Trap()))
    reseal(saved)
    with pytest.raises(CheckpointError, match="not a valid safetensors file"):
        load_checkpoint(saved)
    assert not (saved / "trapped").exists()


def test_a_missing_directory_is_named(tmp_path):
    with pytest.raises(CheckpointError, match=r"nowhere/manifest\.json: no such directory"):
        load_checkpoint(tmp_path / "nowhere")


def test_saving_over_other_files_is_refused(tmp_path):
    (tmp_path / CONFIG).write_text("mine")
    (tmp_path / "notes.txt").write_text("mine")
    many = tmp_path / "many"
    many.mkdir()
    for letter in "abcdefg":
        (many / letter).touch()
    with pytest.raises(ValueError, match="one with a, b, c, d, e; choose another path$"):
        save_checkpoint(build_model(SMALL), many)
    with pytest.raises(ValueError, match=r"expected a new or empty directory .*notes\.txt"):
        save_checkpoint(build_model(SMALL), tmp_path)
    assert (tmp_path / CONFIG).read_text() == "mine"
    with pytest.raises(ValueError, match="expected a directory, got a file"):
        save_checkpoint(build_model(SMALL), tmp_path / "notes.txt")


def test_a_manifest_that_is_none_is_named_with_its_path(saved):
    (saved / MANIFEST).write_text("{")
    with pytest.raises(
        ValueError, match=r"checkpoint/manifest\.json: not valid JSON .*; delete it"
    ):
        save_checkpoint(build_model(SMALL), saved)


def test_a_config_with_the_fewest_fields_loads(saved):
    """Fields that a newer TransformerLens no longer has may be left out, but for a few."""
    config = json.loads((saved / CONFIG).read_text())
    needed = ("d_model", "n_layers", "dtype", *_INERT)
    others = ("n_ctx", "d_head", "n_heads", "d_vocab", "attn_only", "normalization_type")
    cfg = {name: config["hooked_transformer"][name] for name in (*needed, *others)}
    cfg["use_attn_scale"] = config["hooked_transformer"]["use_attn_scale"]
    change_entry(saved, "hooked_transformer", cfg)
    expected = compact_logits(build_model(SMALL, seed=1), [[1, 2, 3]])
    loaded = load_checkpoint(saved)
    assert torch.equal(compact_logits(loaded, [[1, 2, 3]]), expected)
    assert loaded.cfg.init_weights is True
    for name in needed:
        change_entry(saved, "hooked_transformer", {k: v for k, v in cfg.items() if k != name})
        with pytest.raises(CheckpointError, match="unknown .* or too few"):
            load_checkpoint(saved)


def test_a_foreign_file_of_the_same_name_is_not_overwritten(tmp_path):
    for name in (CONFIG, WEIGHTS, MANIFEST):
        directory = tmp_path / name.removesuffix(".json")
        directory.mkdir()
        (directory / name).write_text("mine")
        with pytest.raises(ValueError, match="choose another path"):
            save_checkpoint(build_model(SMALL), directory)
        assert [path.name for path in directory.iterdir()] == [name]
        assert (directory / name).read_text() == "mine"


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
    with pytest.raises(TypeError, match="expected a HookedTransformer, got Linear"):
        save_checkpoint(torch.nn.Linear(2, 2), tmp_path / "linear")
    assert list(tmp_path.iterdir()) == []


def test_the_example_is_a_trained_model_that_counts():
    model, test = example_model(), make_splits().test
    logits = compact_logits(model, test)
    assert float(((logits[:, 5] > logits[:, 6]) == test.labels).double().mean()) >= 0.99
    assert (compact_logits(model, test, "answer").argmax(-1) == 7).double().mean() >= 0.99
    assert (model.cfg.n_heads, model.cfg.d_head) == (16, 2)
    info = checkpoint_info(Path(__file__).parents[2] / "count01_lens/data/example")["info"]
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
    before = {path.name: path.read_bytes() for path in saved.iterdir()}
    half, mixed = build_model(SMALL).half(), build_model(SMALL)
    mixed.unembed.double()
    for model, got in ((half, "float16"), (mixed, "float32, float64")):
        with pytest.raises(ValueError, match=f"of dtype float32 or float64, got {got};"):
            save_checkpoint(model, saved)
    assert {path.name: path.read_bytes() for path in saved.iterdir()} == before


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
    with pytest.raises(CheckpointError, match=r"config\.json"):
        load_checkpoint(saved)


@pytest.mark.parametrize("value", [None, 3])
def test_impossible_values_beside_cfg_are_our_error(saved, value):
    config = json.loads((saved / CONFIG).read_text())
    config["frozen_parameters"] = value
    (saved / CONFIG).write_text(json.dumps(config))
    reseal(saved)
    with pytest.raises(CheckpointError, match="frozen_parameters: expected a list"):
        load_checkpoint(saved)


def test_odd_arguments(saved):
    with pytest.raises(CheckpointError, match="cannot be read"):
        load_checkpoint("a\0b")
    for info in ([1, 2], "abc"):
        with pytest.raises(TypeError, match="info: expected a dict of JSON values"):
            save_checkpoint(build_model(SMALL), saved, info=info)
