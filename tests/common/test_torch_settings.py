"""What users set in torch for all of their program: each function works, or says what is wrong."""

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import count01_lens as cl
from count01_lens.common.storage import sha256
from tests.helpers import TINY

MODEL = cl.ModelConfig(d_embed=4, n_heads=2, n_ctx=64)
RECIPE = cl.TrainConfig(model=MODEL, epochs=1, batch_size=150)
# Those that make or read no tensors here.
ELSEWHERE = {"model_grid", "checkpoint_info", "run_jobs", "dask_executor", "encode", "decode"}
ELSEWHERE |= {"parse", "validate", "plot_evolution", "load_run", "group_evolution"}
ELSEWHERE |= {"head_evolution", "compare_heads"}  # of what others have made


@pytest.fixture
def ready() -> dict[str, Any]:
    """What was made before the user set anything."""
    return {"model": cl.build_model(MODEL), "counts": TINY.test.counts}


def calls(model: Any, counts: Any, out: Path) -> dict[str, Callable[[], Any]]:
    """A call of each function that works with tensors."""
    return {
        "accuracy": lambda: cl.accuracy(model, counts),
        "ablate_heads": lambda: cl.ablate_heads(model, [0]).__enter__(),
        "analyze_heads": lambda: cl.analyze_heads(model, TINY),
        "build_model": lambda: cl.build_model(MODEL),
        "compact_logits": lambda: cl.compact_logits(model, counts),
        "compare_attention": lambda: cl.compare_attention(model, "01=", w01=1.0),
        "cooperative_model": lambda: cl.cooperative_model(),
        "copy_attention": lambda: cl.copy_attention(model, "01=").__enter__(),
        "counting_task": lambda: cl.counting_task("majority").splits,
        "ensemble_model": lambda: cl.ensemble_model(),
        "example_model": lambda: cl.example_model(),
        "head_logits": lambda: cl.head_logits(model, counts),
        "head_outputs": lambda: cl.head_outputs(model, counts),
        "load_checkpoint": lambda: cl.load_checkpoint(out / "before"),
        "make_splits": lambda: cl.make_splits(),
        "minimal_model": lambda: cl.minimal_model(),
        "ov_table": lambda: cl.ov_table(model, 0),
        "patch_attention": lambda: cl.patch_attention(model, w01=1.0).__enter__(),
        "qk_table": lambda: cl.qk_table(model, 0),
        "save_checkpoint": lambda: cl.save_checkpoint(model, out / "model"),
        "set_attention": lambda: cl.set_attention(model, {"0": 1.0}).__enter__(),
        "show_attention": lambda: cl.show_attention(model, "01="),
        "show_attribution": lambda: cl.show_attribution(model, "01="),
        "sweep_attention": lambda: cl.sweep_attention(model, "w01", [1.0], TINY),
        "sweep_models": lambda: cl.sweep_models([RECIPE], [0], out / "sweep", workers=0),
        "task_of": lambda: cl.task_of(model).splits,
        "train": lambda: cl.train(RECIPE, splits=TINY),
        "verify": lambda: cl.verify(model, 3),
        "why_not_counts": lambda: cl.why_not_counts(model),
    }


def test_every_public_function_is_looked_at(ready, tmp_path):
    functions = {name for name in dir(cl) if inspect.isfunction(getattr(cl, name))}
    figures = {name for name in functions if name.startswith("plot_")}  # of numbers computed before
    assert functions - ELSEWHERE - figures == set(calls(**ready, out=tmp_path))


def test_another_default_device_is_refused_with_what_to_do(ready, tmp_path):
    cl.save_checkpoint(ready["model"], tmp_path / "before")
    refused = {}
    with torch.device("meta"):
        for name, call in calls(**ready, out=tmp_path).items():
            try:
                call()
            except Exception as error:
                refused[name] = f"{type(error).__name__}: {error}"
            else:
                refused[name] = "did something"
    expected = "torch's default device: expected 'cpu'"
    wrong = {name: text for name, text in refused.items() if expected not in text}
    assert not wrong
    assert "call torch.set_default_device('cpu')" in refused["train"]
    assert not (tmp_path / "sweep").exists()


@pytest.fixture(params=[torch.float64, torch.bfloat16, torch.float16])
def other_dtype(request) -> Iterator[Callable[[], None]]:
    yield lambda: torch.set_default_dtype(request.param)
    torch.set_default_dtype(torch.float32)


def test_another_default_dtype_changes_nothing(tmp_path, other_dtype):
    def results(out: Path) -> dict[str, Any]:
        trained = cl.train(RECIPE, seeds=[0, 1], splits=TINY)
        model = cl.example_model()
        analysis = cl.analyze_heads(trained.models[0], TINY).with_groups()
        analysis.save(out)
        by_sentence = model.run_with_cache(model.to_tokens("0110="))[0]
        return {
            "history": trained.history.to_csv(),
            "parameters": [rows.numpy().tobytes() for rows in trained.snapshots.values()],
            "built": cl.build_model(MODEL).W_E.detach().numpy().tobytes(),
            "made": cl.minimal_model().W_E.detach().numpy().tobytes(),
            "verified": str(cl.verify(model, 20).to_dict()),
            "logits": by_sentence.detach().numpy().tobytes(),
            "analysis": analysis.table.to_csv() + analysis.groups().to_csv(),
            "file": sha256(out.read_bytes()),
            "page": cl.show_attention(model, "0110=").page,
        }

    before = results(tmp_path / "one.safetensors")
    other_dtype()
    after = results(tmp_path / "two.safetensors")
    assert {name for name in before if before[name] != after[name]} == set()
