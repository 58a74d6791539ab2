"""How a model is trained: the choices that the paper does not state, each with our default.

The defaults were chosen on the validation split alone; `docs/recipe.md` has the comparison and
`python -m experiments.tools.choose_recipe` repeats it. Nothing heavy is imported at the top: the
command line takes its defaults from here.
"""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

from count01_lens.common.validation import (
    check_bool,
    check_choice,
    check_int,
    check_number,
    check_seed,
)
from count01_lens.models.config import ModelConfig

if TYPE_CHECKING:
    import torch

    from count01_lens.tasks.dataset import Splits

Decay = Literal["linear", "cosine", "none"]
OptimiserName = Literal["adamw", "adam", "sgd"]
Precision = Literal["float32", "float64"]
SecondTask = Literal["end", "copy", "other_token"]
MOST_EPOCHS = 500_000  # the history of a run is kept in memory, and written after every epoch


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """A training recipe.

    Attributes:
        model: shape and initialisation of the model.
        epochs: passes over the training split, at most 500,000.
        batch_size: sentences per step; the last batch of an epoch may be smaller.
        learning_rate: at the start.
        decay: "linear" takes the learning rate to zero over the run, "cosine" too, along half a
            cosine, "none" keeps it.
        optimiser: "adamw", "adam" (weight decay added to the gradient) or "sgd" (momentum 0.9,
            weight decay likewise), each as in torch.optim.
        weight_decay: of the optimiser, on all parameters.
        eos_weight: weight of the second task's loss beside the answer's; 0 leaves that task out.
        second_task: what comes after the answer: "end" ('[EOS]', the paper's). For comparison,
            "copy" (the answer once more) and "other_token" ('2', so that '[EOS]' has no part).
        train_output_bias: whether the bias of the output layer is trained, or stays as it was
            initialised.
        dropout: share of the coordinates of the attention output that are dropped in training,
            after the projection (for a fused output layer: of the head outputs).
        data_seed: seed of the data set, where no splits are given.
        precision: "float32" or "float64".
    """

    model: ModelConfig = field(default_factory=ModelConfig)
    epochs: int = 100
    batch_size: int = 64
    learning_rate: float = 5e-3
    decay: Decay = "linear"
    optimiser: OptimiserName = "adamw"
    weight_decay: float = 0.01
    eos_weight: float = 1.0
    second_task: SecondTask = "end"
    train_output_bias: bool = True
    dropout: float = 0.0
    data_seed: int = 0
    precision: Precision = "float32"

    def __post_init__(self) -> None:
        if not isinstance(self.model, ModelConfig):
            raise TypeError(f"model: expected a ModelConfig, got {self.model!r}")
        checked: dict[str, int | float] = {
            "learning_rate": check_number("learning_rate", self.learning_rate, above=0),
            "data_seed": check_seed(self.data_seed),
        }
        checked["epochs"] = check_int("epochs", self.epochs, at_least=1, at_most=MOST_EPOCHS)
        checked["batch_size"] = check_int("batch_size", self.batch_size, at_least=1)
        for name in ("weight_decay", "eos_weight", "dropout"):
            checked[name] = check_number(name, getattr(self, name))
        vars(self).update(checked)
        check_choice("decay", self.decay, get_args(Decay))
        check_choice("optimiser", self.optimiser, get_args(OptimiserName))
        check_choice("second_task", self.second_task, get_args(SecondTask))
        check_bool("train_output_bias", self.train_output_bias)
        if self.dropout >= 1:
            raise ValueError(f"dropout: expected a share below 1, got {self.dropout!r}")
        check_choice("precision", self.precision, get_args(Precision))

    @classmethod
    def paper(cls) -> "TrainConfig":
        """The recipe whose models come closest to the numbers in the paper.

        The paper does not state its recipe. `python -m experiments.find_recipe` searched for it;
        docs/recipe.md says what was found.
        """
        model = ModelConfig(output="residual", qkv_bias=True)
        return cls(model=model, batch_size=256, learning_rate=3e-4, decay="cosine")

    @property
    def dtype(self) -> "torch.dtype":
        """The torch dtype of `precision`."""
        import torch

        return {"float32": torch.float32, "float64": torch.float64}[self.precision]

    def to_dict(self) -> dict[str, Any]:
        """Return nested plain values, for JSON."""
        return dataclasses.asdict(self)

    def fields(self) -> dict[str, Any]:
        """Return the fields of the model and the recipe side by side."""
        values = self.to_dict()
        return {**values.pop("model"), **values}

    def changed(self, **fields: Any) -> "TrainConfig":
        """Return the recipe with some fields of its own, or of its model, changed.

        Where d_embed or n_heads changes, d_head is d_embed // n_heads again, unless given.

        Example:
            >>> cl.TrainConfig.paper().changed(n_heads=8, epochs=10).model.d_head
            4
        """
        unknown = [name for name in fields if name not in self.fields()]
        if unknown:
            raise ValueError(f"expected fields of {sorted(self.fields())}, got {unknown[0]!r}")
        shape = {name: fields.pop(name) for name in list(fields) if hasattr(self.model, name)}
        if {"d_embed", "n_heads"} & shape.keys():
            shape = {"d_head": None, **shape}
        return dataclasses.replace(self, model=dataclasses.replace(self.model, **shape), **fields)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "TrainConfig":
        """Read what `to_dict` wrote; fields that are missing get their defaults."""
        return cls(**{**values, "model": ModelConfig(**values["model"])})


def remaining_rate(decay: Decay, progress: float) -> float:
    """Share of the learning rate that is left when a share of all steps has been taken."""
    if decay == "linear":
        return 1 - progress
    return (1 + math.cos(math.pi * progress)) / 2 if decay == "cosine" else 1.0


def check_stackable(configs: Sequence[TrainConfig]) -> None:
    """Raise unless models of these recipes can be trained as one stack.

    Learning rate, weight decay, weight of the '[EOS]' loss and initialisation may differ.
    """
    for config in configs:
        if not isinstance(config, TrainConfig):
            raise TypeError(f"config: expected a TrainConfig, got {config!r}")
    if len(set(configs)) < len(configs):
        raise ValueError(f"config: expected each one once, got {list(configs)}")
    first = shared_fields(configs[0])
    for other in map(shared_fields, configs):
        different = [name for name in first if first[name] != other[name]]
        if different:
            raise ValueError(
                f"configs trained together must share {', '.join(different)}: "
                f"got {[first[name] for name in different]} and "
                f"{[other[name] for name in different]}; train them one after the other"
            )


def shared_fields(config: TrainConfig) -> dict[str, Any]:
    """Return the fields that are the same for all models of a stack."""
    free = ("learning_rate", "weight_decay", "eos_weight", "init")
    return {name: value for name, value in config.fields().items() if name not in free}


def steps_per_epoch(config: TrainConfig, splits: "Splits") -> int:
    """Number of batches in the training split, the last of which may be smaller."""
    return -(-len(splits.train) // config.batch_size)


def training_cost(config: TrainConfig, n_models: int) -> float:
    """Guess how many seconds a stack of models trains on one core, for the order of jobs.

    Measured for 1 to 64 heads, d = 2 to 64 and 1 to 50 models, in batches of 64 of the 7,000
    training sentences, and for 16 heads in batches of 16 to 1,024; right within a third there. A
    step takes 0.12 ms, whatever it computes, for dispatching its operations, and for each model
    more with sentences, with the numbers that heads sum up for each, and with the weights of
    attention. Dropout, whose gradients are found by autograd, takes eight times as long.
    """
    model = config.model
    sums, weights = model.n_heads * (1 + model.d_head), model.n_heads * model.d_head * model.d_embed
    each = config.batch_size / 64 * (0.008 + 0.00032 * sums) + 0.0000072 * weights
    seconds = config.epochs * 7000 / config.batch_size * (0.12 + n_models * each) / 1000
    return seconds * 8 if config.dropout else seconds
