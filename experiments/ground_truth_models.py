"""Random models whose heads have known roles: circuits, copies, opposing and idle heads.

`plant(seed)` draws circuits, fills each of their slots with one head or several, adds heads that
push against the answer and heads that do nothing, and writes the whole into a HookedTransformer
through random bases, so that no weight shows what it is for. Nothing here measures anything.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product

import numpy as np
import torch

import count01_lens as cl
from count01_lens.common.types import HookedTransformer
from count01_lens.models.lens import fields_of, load_state, make_model, state_of
from experiments import ground_truth_circuits as circuits
from experiments.ground_truth_circuits import BOS, QUERY, Circuit, Random, Wiring
from experiments.ground_truth_weights import Head, Shape, build

N_PROMPTS = 32  # for training and for test, each
OPPOSING, QUIET = -0.5, 0.02  # strength beside 1 of a head that works
MOST_CHOICES = 8
IDLE = ("dead", "unread", "constant", "quiet")


Pair = tuple[int, int]


@dataclass(frozen=True)
class Roles:
    """Heads, and pairs of heads, by what they do (`heads.labels` has the words)."""

    facilitating: tuple[int, ...]
    irrelevant: tuple[int, ...]
    interfering: tuple[int, ...]
    copies: tuple[Pair, ...]
    cooperating: tuple[Pair, ...]


@dataclass(frozen=True)
class Planted:
    """A model, what it is asked, and the truth about its heads.

    Attributes:
        slots: the heads that fill each slot: any one of them will do, one is needed.
        words: what each head is, such as "find", "copy", "opposing" or "unread".
        kind: what the model is, such as "2 layers, LN, positions: parity + find".
    """

    seed: int
    model: HookedTransformer
    task: cl.Task
    truth: Roles
    slots: tuple[tuple[int, ...], ...]
    words: tuple[str, ...]
    kind: str


def plant(seed: int) -> Planted:
    """Draw a model with known roles; the same seed gives the same one."""
    rng = np.random.default_rng(seed)
    shape = _draw_shape(rng)
    parts, vocabulary = _draw_circuits(rng, shape)
    heads = _fill_slots(rng, parts, shape)
    n_slots = sum(len(part.slots) for part in parts)
    fillers = vocabulary.new(int(rng.integers(2, 7)))
    combos = list(product(*(range(part.n_values) for part in parts)))
    answers = dict(zip(combos, vocabulary.new(len(combos)), strict=True))
    ids = rng.permutation(vocabulary.n)
    model = build(rng, shape, heads, parts, answers, ids)
    tokens, right = _prompts(rng, parts, fillers, combos, shape)
    prompts = cl.Prompts(
        [ids[list(row)].tolist() for row in tokens], ids[[answers[one] for one in right]].tolist()
    )
    choices = sorted(int(ids[one]) for one in answers.values())
    task = cl.Task(prompts[:N_PROMPTS], prompts[N_PROMPTS:], choices)
    slots = tuple(
        tuple(i for i, head in enumerate(heads) if head.slot == slot) for slot in range(n_slots)
    )
    words = tuple(head.word for head in heads)
    truth, kind = _truth(parts, slots, words), _kind(shape, parts)
    return Planted(seed, model, task, truth, slots, words, kind)


def with_noise(planted: Planted, level: float) -> Planted:
    """Add noise to every weight matrix: normal, its size relative to that of the matrix."""
    generator = torch.Generator().manual_seed(planted.seed)
    state = {name: value.clone() for name, value in state_of(planted.model).items()}
    for name, value in state.items():
        if ".W_" in name:
            size = value.square().mean().sqrt()
            value += level * size * torch.randn(value.shape, generator=generator)
    model = make_model(fields_of(planted.model))
    load_state(model, state)
    return replace(planted, model=model)


def _draw_shape(rng: Random) -> Shape:
    n_layers = int(rng.integers(1, 3))
    return Shape(
        n_layers=n_layers,
        n_heads=int(rng.integers(3, 9) if n_layers == 1 else rng.integers(2, 5)),
        n_ctx=int(rng.integers(14, 18)),
        positions=bool(rng.random() < 0.5),
        norm=str(rng.choice(["LN", "RMS"])) if rng.random() < 0.3 else None,
        mlp=str(rng.choice(["none", "none", "zero", "small"])),
        lengths=bool(rng.random() < 0.25),
    )


def _draw_circuits(rng: Random, shape: Shape) -> tuple[list[Circuit], circuits.Vocabulary]:
    """Draw circuits until they fit into the model, with room for another head or two."""
    makers = circuits.ONE_LAYER + circuits.WITH_POSITIONS * shape.positions
    deep = circuits.TWO_LAYERS + circuits.TWO_LAYERS_WITH_POSITIONS * shape.positions
    while True:
        vocabulary = circuits.Vocabulary()
        n = int(rng.choice([1, 2, 3], p=[0.4, 0.45, 0.15]))
        drawn = [makers[i] for i in rng.choice(len(makers), n, replace=False)]
        if shape.n_layers == 2 and rng.random() < 0.7:
            drawn[0] = deep[rng.integers(len(deep))]
        parts = [make(rng, vocabulary, at, shape.n_ctx) for at, make in enumerate(drawn)]
        slots = [slot for part in parts for slot in part.slots]
        fits = all(
            sum(slot.layers == (layer,) for slot in slots) <= shape.n_heads
            for layer in range(shape.n_layers)
        ) and len(slots) < max(shape.n_layers * shape.n_heads, 2)
        longest = 2 + sum(_longest(part) for part in parts)
        few = int(np.prod([part.n_values for part in parts])) <= MOST_CHOICES
        if fits and few and longest < shape.n_ctx:
            return parts, vocabulary


def _longest(part: Circuit) -> int:
    rng = np.random.default_rng(0)
    bodies = [part.body(rng, value) for value in range(part.n_values) for _ in range(30)]
    return max(len(body.front) + sum(map(len, body.chunks)) for body in bodies)


def _fill_slots(rng: Random, parts: Sequence[Circuit], shape: Shape) -> list[Head]:
    """Decide what every head is; heads are in the order of their numbers."""
    free = [layer for layer in range(shape.n_layers) for _ in range(shape.n_heads)]
    slots = [(part.name, slot) for part in parts for slot in part.slots]
    heads: list[Head] = []
    # Slots that are bound to a layer come first, so that others do not take their place.
    for number in sorted(range(len(slots)), key=lambda i: slots[i][1].layers is None):
        name, slot = slots[number]
        layer = int(rng.choice([at for at in free if slot.layers is None or at in slot.layers]))
        free.remove(layer)
        heads.append(Head(name, slot.wiring, layer, slot=number))
    opposed: set[int] = set()
    for layer in free:
        there = [i for i, (_, s) in enumerate(slots) if s.layers is None or layer in s.layers]
        copyable = [i for i in there if slots[i][1].saturates]
        answering = [i for i in there if slots[i][1].answers]
        luck, against = rng.random(), [i for i in answering if i not in opposed]
        if luck < 0.35 and copyable:
            i = int(rng.choice(copyable))
            strength = float(rng.choice([1.0, rng.uniform(1, 2)]))
            heads.append(Head("copy", slots[i][1].wiring, layer, strength, i))
        elif luck < 0.55 and against:
            i = int(rng.choice(against))
            opposed.add(i)
            heads.append(Head("opposing", slots[i][1].wiring, layer, OPPOSING))
        else:
            word = str(rng.choice(IDLE if answering else IDLE[:3]))
            wiring = slots[int(rng.choice(answering))][1].wiring if word == "quiet" else _IDLING
            heads.append(Head(word, wiring, layer, QUIET if word == "quiet" else 1.0))
    heads = [heads[i] for i in rng.permutation(len(heads))]
    return sorted(heads, key=lambda head: head.layer)


_IDLING = Wiring((), ())


def _truth(
    parts: Sequence[Circuit], slots: Sequence[tuple[int, ...]], words: Sequence[str]
) -> Roles:
    """Spell out what was planted: slots cooperate, unless they stand in for each other."""
    owner = [part for part in parts for _ in part.slots]
    cooperating = [
        tuple(sorted(pair))
        for (i, one), (j, other) in combinations(enumerate(slots), 2)
        if owner[i] is not owner[j] or not owner[i].substitutes
        for pair in product(one, other)
    ]
    return Roles(
        facilitating=tuple(sorted(head for slot in slots for head in slot)),
        irrelevant=tuple(i for i, word in enumerate(words) if word in IDLE),
        interfering=tuple(i for i, word in enumerate(words) if word == "opposing"),
        copies=tuple(sorted(pair for slot in slots for pair in combinations(slot, 2))),
        cooperating=tuple(sorted((int(a), int(b)) for a, b in cooperating)),
    )


def _kind(shape: Shape, parts: Sequence[Circuit]) -> str:
    extras = [shape.norm, "positions" if shape.positions else None]
    extras += [None if shape.mlp == "none" else f"{shape.mlp} MLP"]
    layers = "1 layer" if shape.n_layers == 1 else f"{shape.n_layers} layers"
    about = ", ".join([layers, *(extra for extra in extras if extra)])
    return f"{about}: {' + '.join(part.name for part in parts)}"


def _prompts(
    rng: Random,
    parts: Sequence[Circuit],
    fillers: Sequence[int],
    combos: Sequence[tuple[int, ...]],
    shape: Shape,
) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """Draw different prompts, every answer as often as any other."""
    tokens: dict[tuple[int, ...], tuple[int, ...]] = {}
    while len(tokens) < 2 * N_PROMPTS:
        values = combos[len(tokens) % len(combos)]
        bodies = [part.body(rng, value) for part, value in zip(parts, values, strict=True)]
        front = [one for body in bodies for one in body.front]
        chunks = [chunk for body in bodies for chunk in body.chunks]
        missing = shape.n_ctx - 2 - len(front) - sum(map(len, chunks))
        missing -= int(rng.integers(min(missing, 2) + 1)) if shape.lengths else 0
        chunks += [(int(rng.choice(fillers)),) for _ in range(missing)]
        shuffled = [one for i in rng.permutation(len(chunks)) for one in chunks[i]]
        last = next((body.last for body in bodies if body.last is not None), QUERY)
        tokens.setdefault((BOS, *front, *shuffled, last), values)
    rows = list(tokens)
    # Two halves alike: the first of every two prompts with the same answer is for training.
    order = sorted(range(len(rows)), key=lambda i: (i // len(combos) % 2, i))
    return [rows[i] for i in order], [tokens[rows[i]] for i in order]
