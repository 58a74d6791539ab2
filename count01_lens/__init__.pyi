"""The public names, listed once: `__init__.py` imports each when it is first used."""

from .attention.interventions import (
    copy_attention as copy_attention,
)
from .attention.interventions import (
    copy_attention_hooks as copy_attention_hooks,
)
from .attention.interventions import (
    patch_attention as patch_attention,
)
from .attention.interventions import (
    patch_attention_hooks as patch_attention_hooks,
)
from .attention.interventions import (
    set_attention as set_attention,
)
from .attention.interventions import (
    set_attention_hooks as set_attention_hooks,
)
from .attention.rows import (
    AttentionRatios as AttentionRatios,
)
from .attention.rows import (
    PatchedForm as PatchedForm,
)
from .attention.rows import (
    RowPatch as RowPatch,
)
from .attention.sweeps import (
    RatioSweep as RatioSweep,
)
from .attention.sweeps import (
    sweep_attention as sweep_attention,
)
from .counts.closed_form import (
    CountForm as CountForm,
)
from .counts.closed_form import (
    multiplicities as multiplicities,
)
from .counts.compact import (
    compact_hooks as compact_hooks,
)
from .counts.compact import (
    compact_logits as compact_logits,
)
from .counts.compact import (
    compact_tokens as compact_tokens,
)
from .counts.compact import (
    count_form_applies as count_form_applies,
)
from .counts.readout import (
    ov_table as ov_table,
)
from .counts.readout import (
    qk_table as qk_table,
)
from .counts.verification import (
    Verification as Verification,
)
from .counts.verification import (
    verify as verify,
)
from .heads.analysis import (
    HeadAnalysis as HeadAnalysis,
)
from .heads.analysis import (
    analyze_heads as analyze_heads,
)
from .heads.probes import LinearSVM as LinearSVM
from .heads.runners import (
    ablate_heads as ablate_heads,
)
from .heads.runners import (
    ablate_heads_hooks as ablate_heads_hooks,
)
from .heads.runners import (
    head_logits as head_logits,
)
from .heads.runners import (
    head_outputs as head_outputs,
)
from .jobs.cluster import (
    ClusterError as ClusterError,
)
from .jobs.cluster import (
    dask_executor as dask_executor,
)
from .jobs.job import (
    Job as Job,
)
from .jobs.outcome import (
    JobsFailedError as JobsFailedError,
)
from .jobs.results import ResultStore as ResultStore
from .jobs.running import (
    run_jobs as run_jobs,
)
from .models.checkpoints import (
    CheckpointError as CheckpointError,
)
from .models.checkpoints import (
    checkpoint_info as checkpoint_info,
)
from .models.checkpoints import (
    example_model as example_model,
)
from .models.checkpoints import (
    load_checkpoint as load_checkpoint,
)
from .models.checkpoints import (
    save_checkpoint as save_checkpoint,
)
from .models.handcrafted import (
    cooperative_model as cooperative_model,
)
from .models.handcrafted import (
    ensemble_model as ensemble_model,
)
from .models.handcrafted import (
    minimal_model as minimal_model,
)
from .models.model import (
    ModelConfig as ModelConfig,
)
from .models.model import (
    build_model as build_model,
)
from .tasks.dataset import (
    Split as Split,
)
from .tasks.dataset import (
    Splits as Splits,
)
from .tasks.dataset import (
    SplitSpec as SplitSpec,
)
from .tasks.dataset import (
    make_splits as make_splits,
)
from .tasks.language import (
    MalformedSentenceError as MalformedSentenceError,
)
from .tasks.language import (
    Sentence as Sentence,
)
from .tasks.language import (
    Token as Token,
)
from .tasks.language import (
    WrongAnswerError as WrongAnswerError,
)
from .tasks.language import (
    decode as decode,
)
from .tasks.language import (
    encode as encode,
)
from .tasks.language import (
    parse as parse,
)
from .tasks.language import (
    right_answer as right_answer,
)
from .tasks.language import (
    validate as validate,
)
from .training.evolution import (
    head_evolution as head_evolution,
)
from .training.evolution import (
    head_metrics as head_metrics,
)
from .training.model_sweep import (
    ModelSweep as ModelSweep,
)
from .training.model_sweep import (
    model_grid as model_grid,
)
from .training.model_sweep import (
    sweep_models as sweep_models,
)
from .training.recipe import TrainConfig as TrainConfig
from .training.trainer import TrainingDivergedError as TrainingDivergedError
from .training.training_run import (
    TrainResult as TrainResult,
)
from .training.training_run import (
    train as train,
)
from .views.attention_view import (
    AttentionView as AttentionView,
)
from .views.attention_view import (
    compare_attention as compare_attention,
)
from .views.attention_view import (
    show_attention as show_attention,
)
from .views.patching import PatchSession as PatchSession
from .views.share_view import show_shares as show_shares
from .views.widgets import AttentionPatcher as AttentionPatcher

__version__: str
