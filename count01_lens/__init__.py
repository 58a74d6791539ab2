"""Find out what each attention head does: a TransformerLens toolkit, worked out on Count01.

>>> import count01_lens as cl
>>> model = cl.example_model()
>>> cl.verify(model, up_to=20).accuracy
1.0
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

# Importing torch takes seconds, TransformerLens more. Each public name is imported when it is
# first used, so that `import count01_lens` and `count01-lens --help` are instant.
_MODULE_OF = {
    "AttentionPatcher": "widgets",
    "AttentionRatios": "attention_rows",
    "AttentionView": "attention_view",
    "CheckpointError": "checkpoints",
    "ClusterError": "cluster",
    "CountForm": "closed_form",
    "HeadAnalysis": "analysis",
    "Job": "jobs",
    "JobsFailedError": "jobs",
    "LinearSVM": "probes",
    "MalformedSentenceError": "language",
    "ModelConfig": "model",
    "ModelSweep": "model_sweep",
    "PatchSession": "patching",
    "PatchedForm": "attention_rows",
    "RatioSweep": "sweeps",
    "ResultStore": "results",
    "RowPatch": "attention_rows",
    "Sentence": "language",
    "Split": "dataset",
    "SplitSpec": "dataset",
    "Splits": "dataset",
    "Token": "language",
    "TrainConfig": "recipe",
    "TrainResult": "training",
    "TrainingDivergedError": "trainer",
    "Verification": "verification",
    "WrongAnswerError": "language",
    "ablate_heads": "heads",
    "ablate_heads_hooks": "heads",
    "analyze_heads": "analysis",
    "build_model": "model",
    "checkpoint_info": "checkpoints",
    "compact_hooks": "compact",
    "compact_logits": "compact",
    "compact_tokens": "compact",
    "compare_attention": "attention_view",
    "cooperative_model": "handcrafted",
    "copy_attention": "interventions",
    "copy_attention_hooks": "interventions",
    "count_form_applies": "compact",
    "dask_executor": "cluster",
    "decode": "language",
    "encode": "language",
    "ensemble_model": "handcrafted",
    "example_model": "checkpoints",
    "head_evolution": "evolution",
    "head_logits": "heads",
    "head_metrics": "evolution",
    "head_outputs": "heads",
    "load_checkpoint": "checkpoints",
    "make_splits": "dataset",
    "minimal_model": "handcrafted",
    "model_grid": "model_sweep",
    "multiplicities": "closed_form",
    "ov_table": "readout",
    "parse": "language",
    "patch_attention": "interventions",
    "patch_attention_hooks": "interventions",
    "qk_table": "readout",
    "right_answer": "language",
    "run_jobs": "jobs",
    "save_checkpoint": "checkpoints",
    "set_attention": "interventions",
    "set_attention_hooks": "interventions",
    "show_attention": "attention_view",
    "show_shares": "share_view",
    "sweep_attention": "sweeps",
    "sweep_models": "model_sweep",
    "train": "training",
    "validate": "language",
    "verify": "verification",
}

__all__ = [
    "AttentionPatcher",
    "AttentionRatios",
    "AttentionView",
    "CheckpointError",
    "ClusterError",
    "CountForm",
    "HeadAnalysis",
    "Job",
    "JobsFailedError",
    "LinearSVM",
    "MalformedSentenceError",
    "ModelConfig",
    "ModelSweep",
    "PatchSession",
    "PatchedForm",
    "RatioSweep",
    "ResultStore",
    "RowPatch",
    "Sentence",
    "Split",
    "SplitSpec",
    "Splits",
    "Token",
    "TrainConfig",
    "TrainResult",
    "TrainingDivergedError",
    "Verification",
    "WrongAnswerError",
    "ablate_heads",
    "ablate_heads_hooks",
    "analyze_heads",
    "build_model",
    "checkpoint_info",
    "compact_hooks",
    "compact_logits",
    "compact_tokens",
    "compare_attention",
    "cooperative_model",
    "copy_attention",
    "copy_attention_hooks",
    "count_form_applies",
    "dask_executor",
    "decode",
    "encode",
    "ensemble_model",
    "example_model",
    "head_evolution",
    "head_logits",
    "head_metrics",
    "head_outputs",
    "load_checkpoint",
    "make_splits",
    "minimal_model",
    "model_grid",
    "multiplicities",
    "ov_table",
    "parse",
    "patch_attention",
    "patch_attention_hooks",
    "qk_table",
    "right_answer",
    "run_jobs",
    "save_checkpoint",
    "set_attention",
    "set_attention_hooks",
    "show_attention",
    "show_shares",
    "sweep_attention",
    "sweep_models",
    "train",
    "validate",
    "verify",
]

if TYPE_CHECKING:
    from count01_lens.analysis import HeadAnalysis, analyze_heads
    from count01_lens.attention_rows import AttentionRatios, PatchedForm, RowPatch
    from count01_lens.attention_view import AttentionView, compare_attention, show_attention
    from count01_lens.checkpoints import (
        CheckpointError,
        checkpoint_info,
        example_model,
        load_checkpoint,
        save_checkpoint,
    )
    from count01_lens.closed_form import CountForm, multiplicities
    from count01_lens.cluster import ClusterError, dask_executor
    from count01_lens.compact import (
        compact_hooks,
        compact_logits,
        compact_tokens,
        count_form_applies,
    )
    from count01_lens.dataset import Split, Splits, SplitSpec, make_splits
    from count01_lens.evolution import head_evolution, head_metrics
    from count01_lens.handcrafted import cooperative_model, ensemble_model, minimal_model
    from count01_lens.heads import ablate_heads, ablate_heads_hooks, head_logits, head_outputs
    from count01_lens.interventions import (
        copy_attention,
        copy_attention_hooks,
        patch_attention,
        patch_attention_hooks,
        set_attention,
        set_attention_hooks,
    )
    from count01_lens.jobs import Job, JobsFailedError, run_jobs
    from count01_lens.language import (
        MalformedSentenceError,
        Sentence,
        Token,
        WrongAnswerError,
        decode,
        encode,
        parse,
        right_answer,
        validate,
    )
    from count01_lens.model import ModelConfig, build_model
    from count01_lens.model_sweep import ModelSweep, model_grid, sweep_models
    from count01_lens.patching import PatchSession
    from count01_lens.probes import LinearSVM
    from count01_lens.readout import ov_table, qk_table
    from count01_lens.recipe import TrainConfig
    from count01_lens.results import ResultStore
    from count01_lens.share_view import show_shares
    from count01_lens.sweeps import RatioSweep, sweep_attention
    from count01_lens.trainer import TrainingDivergedError
    from count01_lens.training import TrainResult, train
    from count01_lens.verification import Verification, verify
    from count01_lens.widgets import AttentionPatcher

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'count01_lens' has no attribute {name!r}")
    value = getattr(import_module(f"count01_lens.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
