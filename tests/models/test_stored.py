"""Stored models: which files are taken for one, and that they are what TransformerLens makes."""

import dataclasses

import pytest
import torch

import count01_lens as cl
from count01_lens.common.bundle import Bundle, read_bundle, write_bundle
from count01_lens.models.build import build_model
from count01_lens.models.checkpoints import (
    KIND,
    CheckpointError,
    example_file,
    load_checkpoint,
    open_checkpoint,
    save_checkpoint,
)
from count01_lens.models.config import ModelConfig
from count01_lens.models.fingerprint import fingerprint
from count01_lens.models.lens import attn_scale, fields_of, state_of
from count01_lens.models.stored import StoredModel, as_stored, attn_scale_of, hooked
from count01_lens.models.task_of import known_task, language_for, task_of
from tests.helpers import deep_model

SMALL = ModelConfig(d_embed=4, n_heads=2, n_ctx=32)
SCALED = ModelConfig(d_embed=6, n_heads=3, scale_scores=True, output="residual", qkv_bias=True)
MODELS = {
    "fused": lambda: build_model(SMALL, seed=1),
    "float64": lambda: build_model(SMALL, seed=1, dtype=torch.float64),
    "residual, scaled, biased": lambda: build_model(SCALED, seed=2),
    "no layer norm": lambda: build_model(ModelConfig(d_embed=5, n_heads=2, layer_norm=False)),
    "minimal": cl.minimal_model,
    "minimal without skip": lambda: cl.minimal_model(skip=False, dtype=torch.float64),
    "cooperative": cl.cooperative_model,
    "ensemble": lambda: cl.ensemble_model(3),
    "majority": lambda: build_model(SMALL, task=cl.counting_task("majority")),
}


@pytest.fixture
def saved(tmp_path):
    return save_checkpoint(build_model(SMALL, seed=1), tmp_path / "model")


@pytest.fixture
def whole(saved) -> Bundle:
    return read_bundle(saved, KIND)


def with_field(bundle: Bundle, name: str, value: object) -> Bundle:
    cfg = {**bundle.about["hooked_transformer"], name: value}
    return dataclasses.replace(bundle, about={**bundle.about, "hooked_transformer": cfg})


@pytest.mark.parametrize("kind", MODELS)
def test_models_of_the_library_are_read_as_what_transformer_lens_makes_of_them(tmp_path, kind):
    path = save_checkpoint(MODELS[kind](), tmp_path / "model")
    stored, model = open_checkpoint(path), load_checkpoint(path)
    assert isinstance(stored, StoredModel)
    assert vars(stored.cfg) == fields_of(model)
    assert stored.state_dict().keys() == state_of(model).keys()
    for name, tensor in state_of(model).items():
        assert torch.equal(stored.state_dict()[name], tensor)
    for name in ("W_E", "W_U", "W_pos"):
        assert torch.equal(getattr(stored, name), getattr(model, name))
    assert attn_scale_of(stored) == attn_scale_of(model) == attn_scale(model)
    assert language_for(stored) == language_for(model)
    assert type(known_task(stored)) is type(known_task(model))
    assert repr(task_of(stored)) == repr(task_of(model))
    assert cl.why_not_counts(stored) is cl.why_not_counts(model) is None
    assert fingerprint(stored) == fingerprint(model)


@pytest.mark.parametrize("name", ["accurate", "paper", "puzzle"])
def test_the_bundled_models_are_stored_models(name):
    assert isinstance(open_checkpoint(example_file(name)), StoredModel)


def test_the_hooked_transformer_is_built_once_and_is_the_same(saved):
    stored = open_checkpoint(saved)
    assert stored.hooked() is stored.hooked() is hooked(stored)
    assert torch.equal(stored.hooked()("0110="), load_checkpoint(saved)("0110="))
    model = load_checkpoint(saved)
    assert hooked(model) is model


def test_models_that_counts_do_not_apply_to_are_built(tmp_path):
    model = deep_model()
    opened = open_checkpoint(save_checkpoint(model, tmp_path / "deep"))
    assert not isinstance(opened, StoredModel)
    assert fingerprint(opened) == fingerprint(model)


def test_fingerprints_tell_stored_models_apart_as_those_of_built_ones_do(tmp_path):
    models = [build_model(SMALL, seed=1), build_model(SMALL, seed=2), build_model(SCALED, seed=2)]
    unscaled = build_model(dataclasses.replace(SCALED, scale_scores=False), seed=2)
    models += [build_model(SMALL, seed=1).double(), unscaled]
    files = [save_checkpoint(model, tmp_path / str(i)) for i, model in enumerate(models)]
    stored = [open_checkpoint(file) for file in files]
    assert list(map(fingerprint, stored)) == list(map(fingerprint, models))
    assert [fingerprint(each) == fingerprint(stored[0]) for each in stored] == [
        True, False, False, True, False
    ]  # fmt: skip
    assert not any("_hooked" in vars(each) for each in stored), "no TransformerLens is needed"


def test_vocabularies_of_others_are_a_reason_against_it_in_the_same_words(saved):
    task = cl.CountingTask(symbols="abcde", answers=("A", "B"), rule="na > nb")
    reason = cl.why_not_counts(open_checkpoint(saved), task)
    assert reason == cl.why_not_counts(load_checkpoint(saved), task)
    assert "its vocabulary has 8 tokens" in reason


def test_any_other_value_of_any_field_is_left_to_transformer_lens(whole):
    assert as_stored(whole) is not None
    cfg = whole.about["hooked_transformer"]
    for name, value in cfg.items():
        others = [None, True, False, 0, 1, 2, -1, -1.0, 0.5, 1.0, 7, "x", "float64", [], {}, 1e400]
        if isinstance(value, int | float) and not isinstance(value, bool):
            others += [value + 1, -value, float(value), int(value), str(value)]
        for other in others:
            if type(other) is not type(value) or other != value:
                assert as_stored(with_field(whole, name, other)) is None, (name, other)
        less = {field: v for field, v in cfg.items() if field != name}
        about = {**whole.about, "hooked_transformer": less}
        assert as_stored(dataclasses.replace(whole, about=about)) is None, name
    assert as_stored(with_field(whole, "new_field", None)) is None


def test_any_other_cfg_is_left_to_transformer_lens(whole):
    for cfg in (None, [], "x", 3, {}):
        about = {**whole.about, "hooked_transformer": cfg}
        assert as_stored(dataclasses.replace(whole, about=about)) is None


@pytest.mark.parametrize(
    "about",
    [
        {"frozen_parameters": 3},
        {"reads_count01": False},
        {"reads_count01": 1},
        {"counting_task": {}},
        {"counting_task": None},
        {"counting_task": cl.CountingTask(symbols="abcd", answers="AB", rule="na > nb").to_dict()},
    ],
    ids=["frozen", "words of nobody", "words of 1", "no task", "None", "of other tokens"],
)
def test_anything_odd_beside_cfg_is_left_to_transformer_lens(whole, about):
    assert as_stored(dataclasses.replace(whole, about={**whole.about, **about})) is None


def _set(name, value):
    def change(tensors):
        tensors[name].view(-1)[0] = value

    return change


def _put(name, make):
    def change(tensors):
        tensors[name] = make(tensors.get(name))

    return change


ATTN = "blocks.0.attn"
LIES = {
    "positions": _set("pos_embed.W_pos", 1e-30),
    "NaN": _set("unembed.b_U", float("nan")),
    "infinite": _set(f"{ATTN}.W_K", float("inf")),
    "NaN in positions": _set("pos_embed.W_pos", float("nan")),
    "what is not attended to": _set(f"{ATTN}.IGNORE", 0.0),
    "NaN is not attended to": _set(f"{ATTN}.IGNORE", float("nan")),
    "a mask": _put(f"{ATTN}.mask", lambda _: torch.ones(2, 2, dtype=torch.bool)),
    "a mask of numbers": _put(f"{ATTN}.mask", lambda old: old.float()),
    "one tensor more": _put("ln_final.w", lambda _: torch.ones(8)),
    "a tensor less": lambda tensors: tensors.pop(f"{ATTN}.b_O"),
    "another dtype": _put("embed.W_E", lambda old: old.double()),
    "half": _put("embed.W_E", lambda old: old.half()),
    "eight bits": _put("pos_embed.W_pos", lambda old: old.to(torch.float8_e4m3fn)),
    "whole numbers": _put("unembed.W_U", lambda old: old.long()),
    "another shape": _put("embed.W_E", lambda old: old[:, :-1].contiguous()),
    "an axis more": _put("unembed.b_U", lambda old: old[None]),
    "an empty one": _put("unembed.b_U", lambda old: old[:0]),
}


@pytest.mark.parametrize("lie", LIES)
def test_lying_tensors_give_what_they_gave_before(saved, whole, lie):
    LIES[lie](whole.tensors)
    assert as_stored(whole) is None
    write_bundle(saved, whole)
    assert _outcome(open_checkpoint, saved) == _outcome(load_checkpoint, saved)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_ctx", 64), ("n_layers", 2), ("attention_dir", "x"),
        ("attention_dir", "bidirectional"), ("normalization_type", "LN"), ("attn_only", False),
        ("positional_embedding_type", "rotary"), ("use_attn_scale", True), ("attn_scale", 0.0),
        ("seed", 7), ("default_prepend_bos", "x"), ("dtype", "float16"), ("model_name", "mine"),
        ("output_logits_soft_cap", 3.0), ("use_logn_attn", True), ("device", "cuda"),
    ],
)  # fmt: skip
def test_lying_fields_give_what_they_gave_before(saved, whole, name, value):
    write_bundle(saved, with_field(whole, name, value))
    assert _outcome(open_checkpoint, saved) == _outcome(load_checkpoint, saved)


@pytest.mark.parametrize("name", ["n_heads", "d_vocab", "d_head", "d_model"])
def test_sizes_that_tensors_do_not_have_are_refused(saved, whole, name):
    write_bundle(saved, with_field(whole, name, 9))
    with pytest.raises(CheckpointError, match="expected"):  # which tensor is named is chance
        open_checkpoint(saved)


def _outcome(read, path) -> str:
    """What comes of reading a file, and of asking whether counts apply."""
    try:
        model = read(path)
    except CheckpointError as error:
        return str(error)
    return f"{fingerprint(model)} {cl.why_not_counts(model)}"


def test_weights_beyond_any_model_are_left_to_transformer_lens(tmp_path):
    model = build_model(SMALL, dtype=torch.float64)
    model.W_E.data[1, 0] = 1e60
    path = save_checkpoint(model, tmp_path / "large")
    assert not isinstance(open_checkpoint(path), StoredModel)


@pytest.mark.parametrize("path", ["", "..", "nowhere", "/dev/null/x"])
def test_missing_files_are_the_same_error(path):
    messages = []
    for read in (open_checkpoint, load_checkpoint):
        with pytest.raises(CheckpointError) as error:
            read(path)
        messages.append(str(error.value))
    assert messages[0] == messages[1]


def test_damaged_files_are_the_same_error(saved):
    data = bytearray(saved.read_bytes())
    data[-3] ^= 1
    saved.write_bytes(data)
    with pytest.raises(CheckpointError, match="does not fit its checksum"):
        open_checkpoint(saved)
