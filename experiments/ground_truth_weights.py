"""From heads spelled in lanes to the weights of a HookedTransformer, in random bases.

The residual stream is a random rotation of the lanes, at right angles to the direction that layer
norm takes out. Every head has random bases of its queries and keys and of its values, so copies
share no weights. All tokens have embeddings of one length, so that a norm before the first layer is
one factor, which is taken out of its weights.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from count01_lens.common.types import Array, HookedTransformer
from count01_lens.models.lens import load_state, make_model, state_of
from experiments.ground_truth_circuits import (
    ONE,
    Circuit,
    Lane,
    Random,
    Row,
    Wiring,
    answer,
    position,
    token,
)

N_JUNK = 3  # lanes that nobody reads
LATER = 3.0  # strength of a second layer behind a norm, which shrinks what it reads
WILD = 4.0  # size of the random attention of idle heads
D_MLP = 8


@dataclass(frozen=True)
class Shape:
    """Everything about a model but its heads.

    Attributes:
        n_heads: in each layer.
        mlp: "none", "zero" or "small", which writes a little everywhere.
        lengths: whether prompts have different lengths.
    """

    n_layers: int
    n_heads: int
    n_ctx: int
    positions: bool
    norm: str | None
    mlp: str
    lengths: bool


@dataclass(frozen=True)
class Head:
    """A head before it has weights.

    Attributes:
        word: what it is; an idle one has no wiring but this word.
        slot: the slot that it fills, if any.
    """

    word: str
    wiring: Wiring
    layer: int
    strength: float = 1.0
    slot: int | None = None


def build(
    rng: Random,
    shape: Shape,
    heads: Sequence[Head],
    parts: Sequence[Circuit],
    answers: Mapping[tuple[int, ...], int],
    ids: Array,
) -> HookedTransformer:
    """Write heads, embedding and unembedding into a model; tokens have other numbers in it."""
    lanes = _lanes(shape, parts, heads, len(ids))
    d_model = len(lanes) + 1 + int(rng.integers(3))
    basis = _basis(rng, len(lanes), d_model)
    start = {ONE: 1.0}
    for factor, part in enumerate(parts):
        start |= {answer(factor, value): bias for value, bias in enumerate(part.bias)}
    embedding = np.stack([_vector(lanes, {**start, token(one): 1.0}) for one in range(len(ids))])
    places = np.stack([_vector(lanes, {position(at): 1.0}) for at in range(shape.n_ctx)])
    places = places if shape.positions else np.zeros_like(places)
    unembedding = np.zeros((len(lanes), len(ids)))
    for values, one in answers.items():
        read = {answer(factor, value): 1.0 for factor, value in enumerate(values)}
        unembedding[:, one] = _vector(lanes, read)
    length = float(np.linalg.norm(embedding[0] + places[0]))
    norm = np.sqrt(d_model) / length if shape.norm else 1.0
    d_head = max(2, *(max(len(h.wiring.scores), len(h.wiring.moves)) for h in heads))
    d_head += int(rng.integers(2))
    order = np.argsort(ids)  # the token of each id
    state = {
        "embed.W_E": embedding[order] @ basis,
        "pos_embed.W_pos": places @ basis,
        "unembed.W_U": basis.T @ unembedding[:, order],
    }
    for layer in range(shape.n_layers):
        later = LATER if shape.norm and layer else 1.0
        made = [
            _head_weights(rng, head, lanes, d_head, later) for head in heads if head.layer == layer
        ]
        for name, weights in zip("QKVO", zip(*made, strict=True), strict=True):
            turned = [w @ basis if name == "O" else basis.T @ w / norm for w in weights]
            state[f"blocks.{layer}.attn.W_{name}"] = np.stack(turned)
        if shape.mlp != "none":
            state |= _mlp_weights(rng, shape, d_model, f"blocks.{layer}.mlp")
    return _load(shape, state, d_model, d_head, len(ids))


def _lanes(
    shape: Shape, parts: Sequence[Circuit], heads: Sequence[Head], d_vocab: int
) -> dict[Lane, int]:
    """Number all lanes."""
    found: list[Lane] = [ONE, *(token(one) for one in range(d_vocab))]
    found += [position(at) for at in range(shape.n_ctx)]
    found += [answer(f, value) for f, part in enumerate(parts) for value in range(part.n_values)]
    found += [("junk", at, 0) for at in range(N_JUNK)]
    for head in heads:
        for pair in (*head.wiring.scores, *head.wiring.moves):
            found += [lane for row in pair for lane in row]
    return {lane: number for number, lane in enumerate(dict.fromkeys(found))}


def _vector(lanes: Mapping[Lane, int], row: Row) -> Array:
    vector = np.zeros(len(lanes))
    for lane, weight in row.items():
        vector[lanes[lane]] = weight
    return vector


def _basis(rng: Random, n: int, d_model: int) -> Array:
    """Random directions at right angles to each other, and to the mean over the stream."""
    directions = rng.normal(size=(d_model, n + 1))
    directions[:, 0] = 1.0
    return np.asarray(np.linalg.qr(directions)[0][:, 1:].T)


def _head_weights(
    rng: Random, head: Head, lanes: Mapping[Lane, int], d_head: int, later: float
) -> tuple[Array, Array, Array, Array]:
    """W_Q, W_K, W_V and W_O over lanes."""
    query, key, value = (np.zeros((len(lanes), d_head)) for _ in range(3))
    output = np.zeros((d_head, len(lanes)))
    for at, (asks, has) in enumerate(head.wiring.scores):
        query[:, at], key[:, at] = _vector(lanes, asks), later * _vector(lanes, has)
    for at, (reads, writes) in enumerate(head.wiring.moves):
        value[:, at] = later * _vector(lanes, reads)
        output[at] = head.strength * _vector(lanes, writes)
    if not head.wiring.moves:
        query, key = (WILD * rng.normal(size=query.shape) / np.sqrt(d_head) for _ in range(2))
        value, output = _idle_values(rng, head.word, lanes, d_head)
    turn, other = (np.linalg.qr(rng.normal(size=(d_head, d_head)))[0] for _ in range(2))
    stretch = rng.uniform(0.5, 2, d_head)
    return (
        query @ turn * np.sqrt(d_head),
        key @ turn,
        value @ other * stretch,
        (other / stretch).T @ output,
    )


def _idle_values(
    rng: Random, word: str, lanes: Mapping[Lane, int], d_head: int
) -> tuple[Array, Array]:
    """Values of heads that attend wildly and write nothing that tells answers apart."""
    value = rng.normal(size=(len(lanes), d_head)) / np.sqrt(d_head)
    output = np.zeros((d_head, len(lanes)))
    if word == "unread":
        junk = [number for lane, number in lanes.items() if lane[0] == "junk"]
        output[:, junk] = rng.normal(size=(d_head, len(junk))) / np.sqrt(d_head)
    elif word == "constant":
        # The same to all values of a factor: every answer gains alike.
        for lane, number in lanes.items():
            output[:, number] = 0.3 * (lane[0] == "answer" and lane[1] == 0)
    return value, output


def _mlp_weights(rng: Random, shape: Shape, d_model: int, name: str) -> dict[str, Array]:
    inward = rng.normal(size=(d_model, D_MLP)) / np.sqrt(d_model)
    outward = 0.01 * rng.normal(size=(D_MLP, d_model)) / np.sqrt(D_MLP)
    return {f"{name}.W_in": inward, f"{name}.W_out": outward * (shape.mlp == "small")}


def _load(
    shape: Shape, state: Mapping[str, Array], d_model: int, d_head: int, d_vocab: int
) -> HookedTransformer:
    cfg: dict[str, Any] = dict(
        d_model=d_model,
        d_head=d_head,
        n_heads=shape.n_heads,
        n_layers=shape.n_layers,
        n_ctx=shape.n_ctx,
        d_vocab=d_vocab,
        attn_only=shape.mlp == "none",
        normalization_type=shape.norm,
        device="cpu",
        init_weights=False,
        seed=None,
    )
    if shape.mlp != "none":
        cfg |= dict(d_mlp=D_MLP, act_fn="relu")
    model = make_model(cfg)
    weights = dict(state_of(model))
    for name, before in weights.items():
        if name in state:
            weights[name] = torch.tensor(np.ascontiguousarray(state[name]), dtype=torch.float32)
        elif before.is_floating_point() and before.ndim > 0:
            # Weights of norms are ones, every bias is zero; attention has a constant, too.
            weights[name] = torch.full_like(before, float(name.endswith(".w")))
    load_state(model, weights)
    return model
