"""Train a stack of models together, on counts, by next-token loss on the two tokens after '='.

Every model of the stack has its own seed for initialisation and batch order, and its own learning
rate, weight decay and weight of the '[EOS]' loss. No model sees another: losses are summed, never
averaged, over the stack.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from count01_lens.common.progress import epochs_shown, in_notebook
from count01_lens.common.text import listed, plural
from count01_lens.common.types import HookedTransformer
from count01_lens.common.validation import check_int, check_ints, check_seeds
from count01_lens.counts.closed_form import CountForm
from count01_lens.models.build import hooked_transformer, language_of
from count01_lens.models.checkpoints import save_checkpoint
from count01_lens.models.parameters import check_size
from count01_lens.tasks.count01 import Count01
from count01_lens.tasks.counting import CountingLanguage
from count01_lens.tasks.counting_task import CountingTask
from count01_lens.tasks.dataset import Splits, make_splits
from count01_lens.training.live import Viewer, watched
from count01_lens.training.recipe import TrainConfig, check_stackable, steps_per_epoch
from count01_lens.training.run_directory import TrainingRun
from count01_lens.training.stack import Rows, count_form_of, raw_of
from count01_lens.training.wide_trainer import trainer_of

_MOST_MODELS = 10_000  # what a run is must fit into the head of a file
_COPIES = 3  # of the parameters at least: themselves, their gradients, the optimiser's


@dataclass(frozen=True, eq=False)
class TrainResult:
    """What training gives.

    Attributes:
        configs, seeds: of each model.
        history: one row per model and epoch (and per step asked for in the first epoch): `model`
            (index in the stack), `seed`, `epoch` (complete ones), `step`, `loss` (mean since the
            row before), and accuracies on the validation and the test split.
        snapshots: parameters by step, for `at` and `count_form`.
        directory: where the run is stored, if anywhere.
        task: what the models were trained on; None for Count01.
        splits: its data; None if the run was read from a directory that does not tell them.
    """

    configs: tuple[TrainConfig, ...]
    seeds: tuple[int, ...]
    history: pd.DataFrame
    snapshots: Mapping[int, Rows]
    directory: Path | None = None
    task: CountingTask | None = None
    splits: Splits | None = None

    def __repr__(self) -> str:
        config, recipes = self.configs[0], len(set(self.configs))
        last = self.history.groupby("model").last()
        epochs, when = plural(config.epochs, "epoch"), "training"
        if (done := int(self.history["epoch"].max())) < config.epochs:
            epochs, when = f"unfinished, {done} of {epochs}", f"epoch {done}"
        accuracies = [
            f"{what} {last[name].mean():.4f} (lowest {last[name].min():.4f})"
            for what, name in (("test", "test_accuracy"), ("'[EOS]'", "test_eos_accuracy"))
        ]
        by = f" by {recipes} recipes" if recipes > 1 else ""
        seeds = listed(list(dict.fromkeys(self.seeds)))
        return (
            f"{plural(len(self.seeds), 'model')} with "
            f"{plural(config.model.n_heads, 'head')}{by}, "
            f"{epochs}; {'seed' if seeds.isdecimal() else 'seeds'} {seeds}\n"
            f"accuracy after {when}: {', '.join(accuracies)}\n"
            f"{f'stored in {self.directory}' if self.directory else 'not stored on disk'}"
        )

    @cached_property
    def models(self) -> list[HookedTransformer]:
        """The trained models, as plain HookedTransformers."""
        return [self.at(index) for index in range(len(self.seeds))]

    @property
    def asked(self) -> CountingTask:
        """What the models were trained on, with its data; Count01 among others.

        Raises:
            ValueError: the run was read from a directory, and its data are not stored there.
        """
        if self.task is None and self.splits is not None:
            return Count01(self.splits)
        if self.task is None or self.splits is None:
            raise ValueError(
                f"{self.directory}: expected a run whose data follow from its recipe, got one on "
                "splits of its own, which are not stored; give them (splits=...)"
            )
        return self.task

    @property
    def snapshot_epochs(self) -> list[int]:
        """The epochs after which parameters were kept; 0 is the initialisation."""
        first = self.history.drop_duplicates("epoch")
        return first.loc[first["step"].isin(list(self.snapshots)), "epoch"].tolist()

    def at(
        self, model: int, *, epoch: int | None = None, step: int | None = None
    ) -> HookedTransformer:
        """Return one model as it was after an epoch or a step; by default, at the end."""
        rows = self._rows(epoch, step)
        check_int("model", model, at_least=0)
        if model >= len(rows):
            raise ValueError(f"model: expected 0 to {len(rows) - 1}, got {model}")
        config = self.configs[model].model
        raw = raw_of(rows, model, config, self._language)
        return hooked_transformer(raw, config, self.task)

    def count_form(self, *, epoch: int | None = None, step: int | None = None) -> CountForm:
        """Return the token tables of the whole stack after an epoch or a step."""
        return count_form_of(self._rows(epoch, step), self.configs[0].model, self._language)

    def save_models(self, directory: str | Path) -> list[Path]:
        """Write each trained model as a checkpoint, in a file named after its seed."""
        paths, recipes = [], list(dict.fromkeys(self.configs))
        for index, (config, seed) in enumerate(zip(self.configs, self.seeds, strict=True)):
            recipe = f"recipe-{recipes.index(config)}-" if len(recipes) > 1 else ""
            path = Path(directory) / f"{recipe}seed-{seed}"
            last = self.history[self.history["model"] == index].tail(1)
            summary = last.drop(columns=["model", "seed"]).to_dict("records")[0]
            info = {"seed": seed, "recipe": config.to_dict(), "training": summary}
            paths.append(save_checkpoint(self.models[index], path, info=info))
        return paths

    @property
    def _language(self) -> CountingLanguage:
        return language_of(self.task)

    def _rows(self, epoch: int | None, step: int | None) -> Rows:
        if epoch is not None and step is not None:
            raise ValueError("expected an epoch or a step, got both")
        if epoch is not None:
            steps_of_epoch = self.history.loc[self.history["epoch"] == epoch, "step"]
            # Rows of an unfinished first epoch count as epoch 0; its initialisation comes first.
            step = int(steps_of_epoch.min()) if len(steps_of_epoch) else -1
        if step is None:
            step = max(self.snapshots)
        if step not in self.snapshots:
            asked = f"at step {step}" if epoch is None else f"of epoch {epoch}"
            expected = f"expected one of the steps {listed(sorted(self.snapshots))}"
            raise ValueError(f"no snapshot {asked}: {expected}")
        return self.snapshots[step]


def train(
    config: TrainConfig | Sequence[TrainConfig] | None = None,
    *,
    seeds: Iterable[int] = (0,),
    task: CountingTask | None = None,
    splits: Splits | None = None,
    directory: str | Path | None = None,
    snapshot_epochs: Iterable[int] | None = None,
    first_epoch_steps: Iterable[int] = (),
    progress: bool | None = None,
    live: bool | Viewer = False,
) -> TrainResult:
    """Train one model for each config and each seed, all together.

    Args:
        config: a recipe, or several whose models have one shape.
        seeds: for initialisation and batch order. A model depends on its own seed and recipe only,
            not on the other models of the stack (up to rounding).
        task: what to train on, with its data; Count01 by default.
        splits: the data of Count01; drawn with `config.data_seed` by default.
        directory: where to store the run. A run that was stopped, at any moment and in any way,
            continues from there and ends with the same bits (on the same machine, with the same
            versions and the same stack). A finished run is read.
        snapshot_epochs: epochs after which parameters are kept; by default all of them, 0 included.
        first_epoch_steps: steps of the first epoch after which parameters are kept, too.
        progress: show a progress bar, or plain lines where there is no terminal; by default,
            only in a terminal or notebook.
        live: show loss, accuracies and the s-acc of heads while they are trained: True for a widget
            in a notebook, a `LivePage()` for a page on this machine. Results are the same bits.

    Raises:
        TrainingDivergedError: a loss became NaN; names the seed and the step.

    Example:
        >>> config = cl.TrainConfig(model=cl.ModelConfig(d_embed=8, n_heads=2), epochs=1)
        >>> result = cl.train(config, seeds=[0, 1], progress=False)
        >>> len(result.models), int(result.history["epoch"].max())
        (2, 1)
    """
    viewer = _viewer_of(live)
    if live is True and progress is None:
        progress = False  # the widget has a bar
    configs, model_seeds = _stack_of(config, seeds)
    task, splits = _data(task, splits, configs[0])
    check_size(
        configs[0].model,
        configs[0].dtype,
        language_of(task).d_vocab,
        n_models=len(configs),
        copies=_COPIES,
    )
    snapshot_steps = _snapshot_steps(configs[0], splits, snapshot_epochs, first_epoch_steps)
    path = None if directory is None else Path(directory)
    if path is not None and task is not None:
        task.to_dict()  # raises if it cannot be stored, before there is a directory
    run = TrainingRun(configs, model_seeds, splits, snapshot_steps, path, task)
    with run.opened(), torch.inference_mode(False), torch.enable_grad():
        trainer = trainer_of(run)
        state = run.load_state() or trainer.initial_state()
        epochs = configs[0].epochs
        if state.epoch < epochs:
            with (
                epochs_shown(epochs, state.epoch, len(configs), progress) as show,
                watched(viewer, run, state) as after_epoch,
            ):

                def show_all(line: Mapping[str, Any]) -> None:
                    show(line)
                    after_epoch()

                trainer.run(state, show_all)
    history = history_frame(state.history, model_seeds)
    return TrainResult(configs, model_seeds, history, run, path, task, splits)


def _viewer_of(live: bool | Viewer) -> Viewer | None:
    """What shows a training; raise if there is nothing to show it in."""
    if live is False:
        return None
    if live is not True:
        able = all(callable(getattr(live, name, None)) for name in ("follow", "changed"))
        if isinstance(live, type) or not able:
            raise TypeError(
                f"live: expected True, False or a viewer such as cl.LivePage(), got {live!r}"
            )
        return live
    if not in_notebook():
        raise ValueError(
            "live: expected a notebook to show a widget in, got a program without one; use "
            "live=cl.LivePage(), which serves a page on this machine"
        )
    from count01_lens.views.live_widget import LiveWidget

    return LiveWidget()


def _data(
    task: CountingTask | None, splits: Splits | None, config: TrainConfig
) -> tuple[CountingTask | None, Splits]:
    """The task, None if it is Count01, and its data."""
    language_of(task)  # raises if it is none
    if task is not None and splits is not None:
        raise ValueError("expected a task, or splits of Count01, got both")
    if task is not None:
        return (None if isinstance(task, Count01) else task), task.splits
    splits = make_splits(config.data_seed) if splits is None else splits
    return None, Count01(splits).splits


def _stack_of(
    config: TrainConfig | Sequence[TrainConfig] | None, seeds: Iterable[int]
) -> tuple[tuple[TrainConfig, ...], tuple[int, ...]]:
    """Pair every config with every seed."""
    if config is None or isinstance(config, TrainConfig):
        config = (config or TrainConfig(),)
    if isinstance(config, str) or not isinstance(config, Iterable):
        raise TypeError(f"config: expected a TrainConfig or several, got {config!r}")
    configs = tuple(config)
    seeds = check_seeds(seeds)
    if not configs or not seeds:
        raise ValueError(
            f"expected at least one config and one seed, got {len(configs)} and {len(seeds)}"
        )
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"seeds: expected each one once, got {seeds}")
    check_stackable(configs)
    if len(configs) * len(seeds) > _MOST_MODELS:
        raise ValueError(
            f"expected at most {_MOST_MODELS:,} models that are trained together, got "
            f"{len(configs) * len(seeds):,}; train some at a time, or sweep over them"
        )
    stack = [(config, seed) for config in configs for seed in seeds]
    return tuple(config for config, _ in stack), tuple(seed for _, seed in stack)


def _snapshot_steps(
    config: TrainConfig,
    splits: Splits,
    snapshot_epochs: Iterable[int] | None,
    first_epoch_steps: Iterable[int],
) -> tuple[int, ...]:
    """Turn the epochs and steps that a user asks for into steps; the last is always kept."""
    per_epoch = steps_per_epoch(config, splits)
    epochs = range(config.epochs + 1) if snapshot_epochs is None else snapshot_epochs
    epochs = check_ints("snapshot_epochs", epochs, at_least=0)
    early = check_ints("first_epoch_steps", first_epoch_steps, at_least=0)
    for name, values, largest in (
        ("snapshot_epochs", epochs, config.epochs),
        ("first_epoch_steps", early, per_epoch),
    ):
        if max(values, default=0) > largest:
            raise ValueError(f"{name}: expected numbers up to {largest}, got {max(values)}")
    last = config.epochs * per_epoch
    return tuple(sorted({*(epoch * per_epoch for epoch in epochs), *early, last}))


def history_frame(rows: Sequence[Mapping[str, list[float]]], seeds: Sequence[int]) -> pd.DataFrame:
    """Write the history of a stack as a table: a row per model and line."""
    frames = [
        pd.DataFrame({"model": range(len(seeds)), "seed": list(seeds), **row}) for row in rows
    ]
    history = pd.concat(frames, ignore_index=True)
    whole = {"epoch": "int64", "step": "int64"}
    return history.astype(whole).sort_values(["model", "step"], ignore_index=True)
