"""The tables that training uses are those of the exported models."""

import pytest
import torch

from count01_lens.counts.closed_form import CountForm
from count01_lens.counts.multiplicities import Multiplicities
from count01_lens.models.parameters import initial_raw, transformer_lens_parameters
from count01_lens.training.stack import count_form_of, from_rows, to_rows
from tests.helpers import SHAPES, with_biases

COUNTS = torch.tensor([[3, 5, 2], [0, 0, 0], [7, 7, 1], [0, 4, 40]])


@pytest.mark.parametrize("config", SHAPES, ids=str)
def test_tables_and_gradients_are_those_of_the_exported_models(config):
    raws = [initial_raw(config, seed, torch.float64) for seed in range(3)]
    rows = with_biases(to_rows(raws)).requires_grad_()
    exported = CountForm.from_parameters(
        transformer_lens_parameters(from_rows(rows, config), config), config.attn_scale
    )
    used = count_form_of(rows, config)
    for name, table in exported.tables.items():
        torch.testing.assert_close(getattr(used, name), table)
    sentences = Multiplicities.at_both(COUNTS, torch.float64)
    gradients = [
        torch.autograd.grad(form.logits(sentences).square().sum(), rows)[0]
        for form in (used, exported)
    ]
    assert gradients[0].abs().max() > 1e-3
    torch.testing.assert_close(*gradients)
