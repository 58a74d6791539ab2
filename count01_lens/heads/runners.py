"""Heads of a model on Count01 sentences: outputs, shares of the logits, ablation.

Where `count_form_applies`, everything follows from counts; elsewhere the model is run on sequences.
Both give the same, to rounding.
"""

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from einops import einsum
from jaxtyping import Bool, Float, Int
from torch import Tensor

from count01_lens.common.types import Array, HookedTransformer
from count01_lens.common.validation import check_choice
from count01_lens.counts.closed_form import QUERIES, CountForm, asked, multiplicities
from count01_lens.counts.compact import count_form_applies
from count01_lens.heads.metrics import HeadData
from count01_lens.models.build import check_model
from count01_lens.models.hooks import (
    HeadName,
    Hook,
    ablation_hooks,
    check_heads,
    has_final_norm,
    hooks_attached,
    logits_at,
    outputs_at,
    shares_at,
)
from count01_lens.tasks.dataset import (
    Split,
    Splits,
    as_counts,
    labels_of,
    make_splits,
    sequences_of,
)
from count01_lens.tasks.language import At, Token

Mode = Literal["zero", "mean"]
AT: tuple[At, At] = ("=", "answer")


@torch.no_grad()
def head_outputs(
    model: HookedTransformer, data: Any, at: At = "="
) -> Float[Tensor, "sample head d_head"]:
    """Return `hook_z` of every head, at '=' or at the answer.

    Args:
        model: any HookedTransformer over the eight tokens.
        data: a split, or counts [sample, 3].
        at: "=" or "answer".

    Example:
        >>> counts = torch.tensor([[3, 5, 2], [5, 3, 0]])
        >>> cl.head_outputs(cl.example_model(), counts).shape  # sample, head, d_head
        torch.Size([2, 16, 2])
    """
    counts = _checked(model, data, at)
    if count_form_applies(model) is None:
        form = CountForm.from_models([model])
        return form.head_outputs(multiplicities(counts, at, form.scores.dtype), at)[0]
    return outputs_at(model, *_asked(data, counts, at))


@torch.no_grad()
def head_logits(
    model: HookedTransformer, data: Any, at: At = "="
) -> Float[Tensor, "sample head token"]:
    """Return the share of every head in the logit of every token: the paper's `O_i · w_{i,t}`.

    With a final layer norm the shares are those at its frozen scale, and a warning says so.

    Example:
        >>> counts = torch.tensor([[3, 5, 2]])
        >>> shares = cl.head_logits(cl.example_model(), counts)  # sample, head, token
        >>> bool(shares[0, :, cl.Token.FOUR].sum() > shares[0, :, cl.Token.FIVE].sum())
        True
    """
    counts = _checked(model, data, at)
    if count_form_applies(model) is None:
        form = CountForm.from_models([model])
        return form.head_logits(multiplicities(counts, at, form.scores.dtype), at)[0]
    if has_final_norm(model):
        warnings.warn(
            "the model has a final layer norm: shares of heads are taken at its frozen scale",
            stacklevel=2,
        )
    return shares_at(model, *_asked(data, counts, at))


@torch.no_grad()
def model_logits(
    model: HookedTransformer, data: Any, at: At = "="
) -> Float[Tensor, "sample token"]:
    """Return the logits of the token after '=', or after the answer."""
    counts = _checked(model, data, at)
    if count_form_applies(model) is None:
        form = CountForm.from_models([model])
        return form.logits(multiplicities(counts, at, form.scores.dtype), at)[0]
    return logits_at(model, *_asked(data, counts, at))


@contextmanager
def ablate_heads(
    model: HookedTransformer,
    heads: Iterable[HeadName],
    mode: Mode = "zero",
    *,
    data: Any = None,
) -> Iterator[HookedTransformer]:
    """Run a model without some heads, inside a `with` block.

    Args:
        model: any HookedTransformer over the eight tokens.
        heads: numbers, or (layer, head) pairs.
        mode: "zero" puts zeros in the place of their outputs, "mean" their mean at '=' over the
            training split.
        data: what the mean is taken over, if not the default training split.

    Example:
        >>> model = cl.example_model()
        >>> with cl.ablate_heads(model, range(16)):
        ...     left = model("0112=")[0, -1]  # nothing but the bias of the output layer
        >>> torch.equal(left, model.b_U)
        True
    """
    with hooks_attached(model, ablate_heads_hooks(model, heads, mode, data=data)):
        yield model


def ablate_heads_hooks(
    model: HookedTransformer,
    heads: Iterable[HeadName],
    mode: Mode = "zero",
    *,
    data: Any = None,
) -> list[tuple[str, Hook]]:
    """Return the same ablation as a `fwd_hooks` list for `run_with_hooks`."""
    check_choice("mode", mode, ("zero", "mean"))
    check_model(model)
    numbers = check_heads(model, heads)
    means = None
    if mode == "mean":
        means = head_outputs(model, make_splits().train if data is None else data).mean(dim=0)
    return ablation_hooks(model, numbers, means=means)


def _checked(model: HookedTransformer, data: Any, at: str) -> Int[Tensor, "sample 3"]:
    check_choice("at", at, ("=", "answer"))
    check_model(model)
    return as_counts(data)


def _asked(
    data: Any, counts: Int[Tensor, "sample 3"], at: At
) -> tuple[list[Int[Tensor, " _"]], list[int]]:
    """Write sentences out, and say where each is asked."""
    sequences = data.sequences() if isinstance(data, Split) else sequences_of(counts)
    before_end = 2 if at == "answer" else 3
    assert sequences[0][-1] == Token.EOS
    return sequences, [len(sequence) - before_end for sequence in sequences]


def head_data(model: HookedTransformer, splits: Splits) -> HeadData:
    """Collect what the metrics need: outputs, shares, biases and labels on a data set."""
    counts = _checked(model, splits.test, "=")
    if count_form_applies(model) is None:
        return head_data_of_form(CountForm.from_models([model]), splits)
    answers = [Token.FOUR, Token.FIVE]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the model has a final layer norm")
        shares, end_shares = (head_logits(model, splits.test, at).double() for at in AT)
    logits, end_logits = (model_logits(model, splits.test, at).double() for at in AT)

    # Groups may be asked for much later, when a patch is gone or weights were changed.
    few = Split("a few", splits.test.counts[:8], splits.test.seed)
    then = model_logits(model, few)

    def ablated(mask: Bool[Array, " head"]) -> tuple[Array, Array]:
        if not torch.allclose(model_logits(model, few), then, rtol=1e-4, atol=1e-4):
            raise ValueError(
                "model: expected it as it was when it was analysed, got other logits: its weights "
                "or its hooks have changed since; analyse it again, or stay in the `with` block"
            )
        others = [head for head in range(len(mask)) if not mask[head]]
        hooks = ablation_hooks(model, others) if others else []
        with hooks_attached(model, hooks):
            after_equals, after_answer = (model_logits(model, splits.test, at) for at in AT)
        return after_equals[:, answers].double().numpy(), after_answer.double().numpy()

    return HeadData(
        train_outputs=head_outputs(model, splits.train).double().numpy(),
        train_labels=splits.train.labels.numpy(),
        test_outputs=head_outputs(model, splits.test).double().numpy(),
        test_labels=labels_of(counts).numpy(),
        shares=shares[..., answers].numpy(),
        bias=(logits - shares.sum(dim=1))[:, answers].numpy(),
        end_shares=end_shares.numpy(),
        end_bias=(end_logits - end_shares.sum(dim=1)).numpy(),
        end_token=int(Token.EOS),
        ablated=ablated,
    )


@torch.no_grad()
def head_data_of_form(form: CountForm, splits: Splits) -> HeadData:
    """Collect the same from the tables of one model, its attention patched or not."""
    answers = [Token.FOUR, Token.FIVE]
    dtype = form.scores.dtype
    test = {at: multiplicities(splits.test.counts, at, dtype) for at in AT}
    train = multiplicities(splits.train.counts, "=", dtype)
    outputs = {at: form.head_outputs(test[at], at)[0].double() for at in AT}
    weights = form.logit_weights[0].double()
    shares = {
        at: einsum(outputs[at], weights, "sample head d, head d t -> sample head t") for at in AT
    }
    bias = {at: (asked(test[at]) @ form.logit_bias[0, QUERIES[at]]).double() for at in AT}
    return HeadData(
        train_outputs=form.head_outputs(train, "=")[0].double().numpy(),
        train_labels=splits.train.labels.numpy(),
        test_outputs=outputs["="].numpy(),
        test_labels=splits.test.labels.numpy(),
        shares=shares["="][..., answers].numpy(),
        bias=bias["="][:, answers].numpy(),
        end_shares=shares["answer"].numpy(),
        end_bias=bias["answer"].numpy(),
        end_token=int(Token.EOS),
    )
