"""Models for tests, in whichever version of TransformerLens is installed."""

import itertools
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functional_call

from count01_lens.models.bridges import named_as_bridge
from count01_lens.models.lens import (
    has_bridges,
    kind_of_models,
    make_model,
    model_class,
    state_of,
)

KIND = kind_of_models()


def made(tokenizer: Any = None, **fields: Any) -> Any:
    """The model of some fields; a test of one that TransformerLens 4 has not is skipped there."""
    try:
        return make_model({"device": "cpu", **fields}, tokenizer)
    except ValueError as error:
        if has_bridges() and "only one of them does" in str(error):
            pytest.skip(f"TransformerLens 4: makes no such model ({str(error).split(':')[0]})")
        raise


def needs_3(reason: str) -> pytest.MarkDecorator:
    """Skip a test that is about what only TransformerLens 3 has."""
    return pytest.mark.skipif(has_bridges(), reason=f"TransformerLens 4: {reason}")


needs_4 = pytest.mark.skipif(
    not has_bridges(), reason="cannot run in CI: about TransformerLens 4; see `make test-tl4`"
)


def call_with(model: Any, parameters: Mapping[str, Tensor], tokens: Tensor) -> Tensor:
    """Run a model with other parameters, by the names of a HookedTransformer, differentiably."""
    if not has_bridges():
        return functional_call(model, dict(parameters), (tokens,))
    module = torch.nn.Module
    members = itertools.chain(module.named_parameters(model), module.named_buffers(model))
    names = {id(tensor): name for name, tensor in members}
    given = named_as_bridge(model, {**state_of(model), **parameters})
    own = model.state_dict(keep_vars=True)
    return functional_call(model, {names[id(own[key])]: given[key] for key in own}, (tokens,))


NO_THREADS = "bridges note on themselves how large a batch is, so that threads cannot share one"
NO_CACHE = "native bridges keep no keys and values of earlier tokens"
__all__ = [
    "KIND",
    "NO_CACHE",
    "NO_THREADS",
    "call_with",
    "has_bridges",
    "made",
    "model_class",
    "needs_3",
]
