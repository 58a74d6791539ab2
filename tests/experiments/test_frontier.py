"""The frontier between the headline and the picture of heads, by hand-made tables."""

import pandas as pd
import pytest

from count01_lens.training.recipe import check_stackable
from experiments import frontier, map_of_claims
from experiments.headline import HEADLINE, OF_TRAINING
from experiments.recipe_design import recipe_id
from experiments.setup import contrast_setup, paper_setup


def test_every_recipe_has_its_twin_without_the_end():
    setup = paper_setup("full")
    found = frontier.pairs(setup)
    assert {setup.recipe, contrast_setup("full").recipe} <= set(found)
    for config, without in found.items():
        assert without == config.changed(eos_weight=0.0)
        assert config.eos_weight > 0
    trained = [config for job in frontier.jobs(setup) for config in job.configuration["recipes"]]
    for config in [*found, *found.values()]:
        assert trained.count(config.to_dict()) == 1
    shared = {job.key for job in map_of_claims.jobs(setup)}
    assert shared < {job.key for job in frontier.jobs(setup)}
    for job in frontier.jobs(setup):
        check_stackable(
            [frontier.cl.TrainConfig.from_dict(c) for c in job.configuration["recipes"]]
        )


def test_numbers_by_hand():
    table = pd.DataFrame({"picture_held": [7, 7, 3, 0], "fewer_biased": [0.02, 0.05, 0.15, 0.30]})
    found = frontier.numbers_of(table)
    assert (found["most_held"], found["most_fewer_biased_there"]) == (7, 0.05)
    assert (found["recipes_with_headline"], found["most_held_with_headline"]) == (2, 3)
    assert found["rank_correlation"] == pytest.approx(-0.9486833)
    assert (
        "hold 7; there the share of biased heads falls by at most +5 points"
        in frontier.sentence(found)
    )
    none = frontier.numbers_of(table.iloc[:2])
    assert none["most_held_with_headline"] is None
    assert "holds in none of them" in frontier.sentence(none)
    assert frontier.sentence(frontier.numbers_of(table.iloc[:0])).startswith("No recipe")


def models_of(config, biased, **changes):
    values = dict.fromkeys([*OF_TRAINING, *HEADLINE], 0.5) | changes
    return [
        {
            "recipe": recipe_id(config),
            "epoch": config.epochs,
            "seed": seed,
            **values,
            "F1.biased": b,
        }
        for seed, b in enumerate(biased)
    ]


def test_a_row_is_with_minus_without_and_counts_the_right_claims():
    setup = paper_setup("full")
    config, without = next(iter(frontier.pairs(setup).items()))
    held = {"F3.successful": 0.5, "F3.failed": 0.4, "F4.most_heads_needed": 16.0, "accuracy": 0.96}
    rows = models_of(config, [0.8, 0.6], **held) + models_of(without, [0.5, 0.4], accuracy=0.1)
    found = frontier._row(pd.DataFrame(rows), config, without)
    assert found["fewer_biased"] == pytest.approx(0.25)
    assert found["solves"]
    # 0.5 pairs above 80 % are few; 0.5 is reproduced nowhere else among F3 to F5.
    assert found["picture_held"] == 4
    assert len(frontier.PICTURE) == 7
