"""What a suite is run with: its size, and the recipes that the paper does not tell.

Every row is run with the recipe that comes closest to the paper's printed numbers. Rows that depend
on the recipe are run once more with the one that gives the most accurate models, as a contrast.
"""

from dataclasses import dataclass
from typing import Any, Literal

from count01_lens.models.config import ModelConfig
from count01_lens.training.recipe import TrainConfig
from experiments.recipe_design import JUDGED_SEEDS

Size = Literal["quick", "full"]
SEEDS = JUDGED_SEEDS  # of the models that most rows are about
SHOWN_SEED = SEEDS[0]  # of the one that most figures show


# What comes closest to the paper's table of minimal heads (find_minimal_recipe.py).
MINIMAL = TrainConfig(
    model=ModelConfig(output="residual"), batch_size=256, learning_rate=1e-3, decay="none"
)


@dataclass(frozen=True)
class Setup:
    """What rows are measured with.

    Attributes:
        size: "quick" has fewer repetitions, for a first look; "full" the paper's own counts.
        recipe: of the paper's model, 16 heads and d = 32.
        minimal: of the models with minimal heads (T1), but for their sizes.
    """

    size: Size
    recipe: TrainConfig
    minimal: TrainConfig

    @property
    def epochs(self) -> int:
        """Of rows that train models of their own: half of the recipe's in a quick run."""
        return self.recipe.epochs if self.size == "full" else max(1, self.recipe.epochs // 2)

    def trained(self, **changes: Any) -> TrainConfig:
        """The recipe with some fields changed, of the model's shape or its own."""
        return self.recipe.changed(epochs=self.epochs, **changes)


def paper_setup(size: Size) -> Setup:
    """Train as the paper seems to have done."""
    return Setup(size, TrainConfig.paper(), MINIMAL)


def contrast_setup(size: Size) -> Setup:
    """Train for accuracy."""
    return Setup(size, TrainConfig(), TrainConfig())
