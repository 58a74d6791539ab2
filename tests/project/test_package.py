"""What users see of the package as a whole."""

import pkgutil
from pathlib import Path

import pandas as pd
import pytest

import count01_lens as cl
from experiments.tools import choose_recipe

ROOT = Path(__file__).parents[2]


def test_every_public_name_is_there_and_listed():
    for name in cl.__all__:
        assert getattr(cl, name) is not None
        assert name in dir(cl)
    with pytest.raises(AttributeError, match="No count01_lens attribute nonsense"):
        cl.nonsense  # noqa: B018


def test_no_module_hides_a_public_name():
    """Importing a submodule sets it as an attribute: `cl.verify` would become a module."""
    assert not {module.name for module in pkgutil.iter_modules(cl.__path__)} & set(cl.__all__)


def test_the_recipe_page_shows_the_measured_table():
    measured = pd.read_csv(ROOT / "docs" / "recipe.csv")
    assert len(measured) == 120
    assert (
        choose_recipe.markdown(choose_recipe.summarise(measured))
        in (ROOT / "docs" / "recipe.md").read_text()
    )


def test_the_default_recipe_is_among_the_best_on_validation():
    summary = choose_recipe.summarise(pd.read_csv(ROOT / "docs" / "recipe.csv"))
    default = cl.TrainConfig()
    row = summary[
        (summary["batch_size"] == default.batch_size)
        & (summary["decay"] == default.decay)
        & (summary["learning_rate"] == default.learning_rate)
    ]
    assert row["mean"].item() == summary["mean"].max()


def test_recipes_are_compared_on_the_validation_split():
    measured = choose_recipe.measure([0], epochs=1, progress=False)
    assert len(measured) == 12
    assert not any("test" in column for column in measured.columns)


def test_version_is_that_of_the_package():
    from importlib.metadata import version

    assert cl.__version__ == version("count01-lens")
