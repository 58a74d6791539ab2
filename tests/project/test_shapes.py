"""The run-time check of shapes is on: without it, annotations would be words."""

import jaxtyping
import pytest
import torch

from count01_lens.tasks.dataset import labels_of
from count01_lens.tasks.decisions import four_margin


def test_a_wrong_shape_or_dtype_is_noticed():
    with pytest.raises(jaxtyping.TypeCheckError):
        four_margin(torch.zeros(3, 7))
    with pytest.raises(jaxtyping.TypeCheckError):
        labels_of(torch.zeros(3, 3))
    assert four_margin(torch.zeros(3, 8)).shape == (3,)
