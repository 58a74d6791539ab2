"""Independent oracles: the library against the same thing computed by other means.

Every case has a random generator of its own, `default_rng([seed, case])`. The first case of each
outcome is printed, so that a surprise can be run again by itself.
"""

import itertools
import math
import re
import warnings
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import torch
from sklearn.metrics import roc_auc_score
from sklearn.svm import LinearSVC

from count01_lens.counts.closed_form import CountForm, smallest_safe
from count01_lens.counts.compact import compact_logits
from count01_lens.counts.multiplicities import Multiplicities
from count01_lens.counts.readout import learned_readout, readout
from count01_lens.heads.analyze import analyze_heads
from count01_lens.heads.games import shapley_interactions, shapley_values
from count01_lens.heads.head_data import HeadData, head_data
from count01_lens.heads.metrics import METRICS, Groups, areas, roc_auc
from count01_lens.heads.probe_fits import fit_many
from count01_lens.heads.probes import LinearSVM, NotConvergedWarning
from count01_lens.heads.runners import head_logits, head_outputs, model_logits
from count01_lens.models.handcrafted import cooperative_model, ensemble_model, minimal_model
from count01_lens.models.lens import make_model
from count01_lens.tasks.dataset import MAX_COUNT, Split, Splits, SplitSpec, make_splits
from count01_lens.tasks.decisions import eos_margin, four_margin, says_answer
from count01_lens.tasks.language import (
    MalformedSentenceError,
    WrongAnswerError,
    decode,
    encode,
    parse,
    right_answer,
    split_into_tokens,
    validate,
)
from count01_lens.tasks.places import place_at
from count01_lens.tasks.tokenizer import count01_tokenizer
from tests.attacks.numpy_model import (
    AT,
    EOS,
    EQUALS,
    FIVE,
    FOUR,
    NumpyModel,
    random_counts,
    random_model,
    sentence,
)

Rng = np.random.Generator


def each_case(one: Callable[[Rng], str], cases: int, seed: int) -> Counter[str]:
    """Run cases one by one and count their outcomes."""
    outcomes: Counter[str] = Counter()
    for case in range(cases):
        outcome = one(np.random.default_rng([seed, case]))
        if outcome not in outcomes:
            print(f"{outcome}: first in case {case} of seed {seed}")
        outcomes[outcome] += 1
    return outcomes


# --- a. three ways to run a model, and a fourth in NumPy ------------------------------------------


def attack_forward(cases: int, seed: int) -> Counter[str]:
    """Sequences, compact and closed form against NumPy, in values and in decisions."""
    return each_case(_forward_case, cases, seed)


def _forward_case(rng: Rng) -> str:
    dtype = torch.float32 if rng.random() < 0.25 else torch.float64
    model, raw, config = random_model(rng, dtype=dtype)
    short, long = random_counts(rng, 3, 9), random_counts(rng, 1, 2000)
    counts = np.concatenate([short, long, random_counts(rng, 1, MAX_COUNT)])
    oracle = NumpyModel.of_hooked_transformer(model)
    sentences = [sentence(row, rng) for row in [*short, *long]]
    z, logits = _oracle_results(oracle, sentences, counts[-1])
    _, of_raw = _oracle_results(NumpyModel.of_raw(raw, config), sentences, counts[-1])
    # The compact form adds log n to scores, which may be larger than the scores are.
    z_bound, bound = _bounds(oracle, dtype, at_least=math.log(counts.max() + 1))
    by_way = _three_ways(model, counts, sentences[:3], dtype)
    if not _within(of_raw, logits, bound):
        return "HookedTransformer's weights differ from the raw ones"
    for (way, at), ours in by_way.items():
        if not _within(ours.numpy(), logits[at][: len(ours)], bound):
            return f"{way} differs at {at}"
    for at in AT:
        outputs = head_outputs(model, torch.from_numpy(counts), at).numpy()
        if not _within(outputs, z[at], z_bound):
            return f"head outputs differ at {at}"
    decided = [_same_decisions(ours, logits[at], 2 * bound) for (_, at), ours in by_way.items()]
    if not all(same for same, _ in decided):
        return "a decision differs"
    name = str(dtype).removeprefix("torch.")
    if _underflows(oracle, counts, dtype):
        return f"agrees ({name}, fallback to softmax)"
    if any(close for _, close in decided):
        return f"agrees ({name}, a decision is too close to call)"
    return f"agrees ({name})"


def _bounds(oracle: NumpyModel, dtype: torch.dtype, at_least: float = 1.0) -> tuple[float, float]:
    """How far head outputs and logits may be from the oracle's.

    In float64 1e-12, in float32 5e-6 (forty roundings), times the largest score: rounding grows
    with it. Times the size of the terms that are added up, too, to which rounding is relative.
    """
    unit = 1e-12 if dtype == torch.float64 else 5e-6
    unit *= max(1.0, oracle.largest_score, at_least)
    z_size, logit_size = oracle.sizes
    return unit * max(1.0, z_size), unit * max(1.0, logit_size)


def _oracle_results(oracle: NumpyModel, sentences: list[list[int]], last: np.ndarray):
    """Head outputs and logits at both places; the last sentence is too long to be written out."""
    results = [oracle.run(tokens, [len(tokens) - 2, len(tokens) - 1]) for tokens in sentences]
    answer = FOUR if last[1] > last[0] else FIVE
    present = [token for token in (1, 2, 3) if last[token - 1]]
    tokens = [0, *present, EQUALS, answer]
    times = [1, *(last[token - 1] for token in present), 1, 1]
    results.append(oracle.run(tokens, [len(tokens) - 2, len(tokens) - 1], times))
    z, logits = (np.stack(part) for part in zip(*results, strict=True))
    return (
        {at: z[:, place] for place, at in enumerate(AT)},
        {at: logits[:, place] for place, at in enumerate(AT)},
    )


@torch.no_grad()
def _three_ways(model, counts: np.ndarray, short: list[list[int]], dtype: torch.dtype):
    """Logits by way and place; sequences are run for the short sentences only."""
    data = torch.from_numpy(counts)
    form = CountForm.from_models([model])
    results = {}
    output = _on_sequences(model, short)
    both = form.logits(Multiplicities.at_both(data, dtype))[0].chunk(2)
    for number, (at, part) in enumerate(zip(AT, both, strict=True)):
        results["sequences", at] = output[number]
        results["compact", at] = compact_logits(model, data, at)
        results["closed form", at] = form.logits(Multiplicities.of(data, place_at(at), dtype))[0]
        results["both places at once", at] = part
        written = head_logits(model, data, at).sum(dim=1)
        query = [EQUALS] * len(data) if at == "=" else np.where(data[:, 1] > data[:, 0], FOUR, FIVE)
        results["attributions and bias", at] = written + form.logit_bias[0, query]
    return {key: logits.double() for key, logits in results.items()}


@torch.no_grad()
def _on_sequences(model, sentences: list[list[int]], hooks=()) -> torch.Tensor:
    """Logits [place, sample, token] of the HookedTransformer on tokens, at '=' and at the answer."""
    longest = max(len(tokens) for tokens in sentences)
    # What follows a position does not matter to it, so sentences may be filled up.
    padded = torch.tensor([tokens + [EOS] * (longest - len(tokens)) for tokens in sentences])
    output = model.run_with_hooks(padded, fwd_hooks=list(hooks))
    rows = torch.arange(len(sentences))
    ends = torch.tensor([len(tokens) for tokens in sentences])
    return torch.stack([output[rows, ends - 2], output[rows, ends - 1]])


def _within(ours, expected, bound: float) -> bool:
    if isinstance(ours, dict):
        return all(_within(ours[key], expected[key], bound) for key in expected)
    # NaN must not pass.
    return ours.shape == expected.shape and bool((np.abs(ours - expected) <= bound).all())


def _same_decisions(ours: torch.Tensor, logits: np.ndarray, bound: float) -> tuple[bool, bool]:
    """Whether the decisions are the same where they are clear, and whether some are not clear."""
    logits = logits[: len(ours)]
    lead = logits[:, FOUR] - logits[:, FIVE]
    end = logits[:, EOS] - logits[:, :EOS].max(axis=1)
    answers = np.delete(logits, [FOUR, FIVE], axis=1).max(axis=1)
    answers = np.maximum(logits[:, FOUR], logits[:, FIVE]) - answers
    margins = np.stack([lead, end, answers])
    decisions = np.stack(
        [four_margin(ours).numpy() > 0, eos_margin(ours).numpy() > 0, says_answer(ours).numpy()]
    )
    clear = np.abs(margins) > bound
    return bool(((margins > 0) == decisions)[clear].all()), not clear.all()


def _underflows(oracle: NumpyModel, counts: np.ndarray, dtype: torch.dtype) -> bool:
    """Whether, in some sentence, all that is present has next to nothing of the largest weight."""
    for n0, n1, n2 in counts:
        answer = FOUR if n1 > n0 else FIVE
        for query, keys in ((EQUALS, range(5)), (answer, [*range(5), answer])):
            n = [{1: n0, 2: n1, 3: n2}.get(key, 1) for key in keys]
            scores = oracle.scores[:, query, list(keys)]
            weights = np.exp(scores - scores.max(axis=1, keepdims=True)) @ np.array(n, dtype=float)
            if (weights < smallest_safe(dtype)).any():
                return True
    return False


# --- b. probes and ROC AUC against scikit-learn ---------------------------------------------------


def attack_probes(cases: int, seed: int) -> Counter[str]:
    """Linear SVMs, alone and many at once, against scikit-learn's minimum of the same objective."""
    return each_case(_probe_case, cases, seed)


def _probe_case(rng: Rng) -> str:
    X, y = _separable_or_not(rng)
    C = float(rng.choice([1.0, 30.0, 1000.0]))
    supports = np.ones((2, X.shape[1]), dtype=bool)
    supports[1] = rng.random(X.shape[1]) < 0.5
    supports[1, rng.integers(X.shape[1])] = True
    start = rng.standard_normal((2, 1, X.shape[1] + 1)) if rng.random() < 0.5 else None
    with warnings.catch_warnings():
        warnings.simplefilter("error", NotConvergedWarning)
        try:
            alone = LinearSVM(C=C).fit(X, y)
            many = fit_many(X, y, supports, start=start, C=C)
        except NotConvergedWarning:
            return "did not converge"
    found = [(supports[0], np.append(alone.coef_[0], alone.intercept_), alone.objective_)]
    found += zip(supports, many.weights, many.objectives, strict=True)
    theirs = [_scikit_learn_objective(X[:, support], y, C) for support in supports]
    outcomes = []
    for (support, weights, claimed), expected in zip(found, [theirs[0], *theirs], strict=True):
        if weights[:-1][~support].any():
            return "uses a feature that it may not use"
        reached = _objective(weights[:-1], weights[-1], X, y, C)
        if abs(reached - claimed) > 1e-8 * reached:
            return "claims another objective than it reached"
        # Our bound for rounding: the slack of a sample is a difference of numbers of size 1.
        if reached > expected * (1 + 1e-8):
            return "higher than scikit-learn"
        outcomes.append(reached < expected * (1 - 1e-6))
    return "lower than scikit-learn" if any(outcomes) else "the minimum of scikit-learn"


def _separable_or_not(rng: Rng) -> tuple[np.ndarray, np.ndarray]:
    """Draw features of several kinds, and labels of both classes."""
    n, d = int(rng.integers(10, 120)), int(rng.integers(1, 7))
    X = rng.standard_normal((n, d))
    y = X @ rng.standard_normal(d) + rng.choice([0.0, 0.5, 5.0]) * rng.standard_normal(n) > 0
    y[:2] = True, False
    kind = rng.integers(6)
    if kind == 0:  # two clouds far from each other
        X += np.where(y, 4.0, -4.0)[:, None]
    elif kind == 1:  # many equal samples, some with both labels
        X = X.round()
    elif kind == 2:  # a column that says the same as another, and one that says nothing
        X = np.column_stack([X, X[:, :1], np.ones(n)])
    elif kind == 3:  # a head that has nearly collapsed
        X = 3.0 + 1e-5 * X
    elif kind == 4:  # outputs of real heads
        model, _, _ = random_model(rng)
        counts = torch.from_numpy(random_counts(rng, n, 30))
        X = head_outputs(model, counts).numpy()[:, :3].reshape(n, -1)
        y = (counts[:, 1] > counts[:, 0]).numpy()
        y[:2] = True, False
    if kind < 3:
        X = X * 10 ** rng.uniform(-2, 2) + rng.choice([0.0, 1.0, 10.0])
    return X, y


def _objective(w: np.ndarray, b: float, X: np.ndarray, y: np.ndarray, C: float) -> float:
    slack = np.maximum(0, 1 - np.where(y, 1.0, -1.0) * (X @ w + b))
    return float(0.5 * (w @ w) + 0.5 * b * b + C * (slack @ slack))


def _scikit_learn_objective(X: np.ndarray, y: np.ndarray, C: float) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it may stop early; then it is only a higher value
        theirs = LinearSVC(C=C, dual=False, tol=1e-12, max_iter=10_000).fit(X, y)
    return _objective(theirs.coef_[0], float(theirs.intercept_[0]), X, y, C)


def attack_roc_auc(cases: int, seed: int) -> Counter[str]:
    """ROC AUC of scores with many kinds of ties against scikit-learn's."""
    return each_case(_roc_case, cases, seed)


def _roc_case(rng: Rng) -> str:
    n = int(rng.integers(2, 200))
    labels = rng.random(n) < rng.uniform(0.05, 0.95)
    labels[:2] = rng.permutation([True, False])
    kind = int(rng.integers(6))
    drawn = rng.standard_normal(n)
    scores = [
        lambda: drawn,
        lambda: rng.integers(-2, 3, n).astype(float),
        lambda: drawn.round(1),
        lambda: 0.0 * drawn,  # zeros of both signs
        # Neighbouring numbers, which differ in the last bit only.
        lambda: np.nextafter(rng.choice([-1.0, 1.0, 0.1], n), rng.choice([-9.0, 0.1, 9.0], n)),
        lambda: rng.choice([0.0, -0.0, 5e-324, -5e-324, 1e-323, 1.0], n),
    ][kind]()
    scores = scores * rng.choice([-1.0, 1.0])
    # One row is enough for the area; the other is there to be kept apart from it.
    ours = areas(np.stack([rng.standard_normal(n), scores]), labels)[1]
    if abs(ours - roc_auc_score(labels, scores)) > 1e-12:
        return "area differs"
    tied = len(np.intersect1d(scores[labels], scores[~labels])) > 0
    return "agrees (equal scores with both labels)" if tied else "agrees"


# --- c. groups of heads against the model without the others --------------------------------------


def attack_groups(cases: int, seed: int) -> Counter[str]:
    """l-acc, '[EOS]' l-acc and ROC AUC of groups against runs with the other heads zeroed."""
    return each_case(_group_case, cases, seed)


def _group_case(rng: Rng) -> str:
    if rng.random() < 0.1:
        model, bound, kind = _two_layers(rng), 1e-10, "two layers"
    else:
        dtype = torch.float32 if rng.random() < 0.25 else torch.float64
        model, _, _ = random_model(rng, dtype=dtype)
        _, bound = _bounds(NumpyModel.of_hooked_transformer(model), dtype)
        kind = str(dtype).removeprefix("torch.")
    train, test = _both_answers(rng, 8), _both_answers(rng, 12)
    splits = Splits(Split("train", train), Split("validation", test), Split("test", test))
    n_heads = model.cfg.n_layers * model.cfg.n_heads
    masks = rng.random((2, n_heads)) < 0.5
    masks[~masks.any(axis=1), rng.integers(n_heads)] = True
    data = head_data(model, splits)
    groups = Groups(data, masks)
    # Order matters to a model with positions: these are the sentences that the metrics are of.
    sentences = [sequence[:-1].tolist() for sequence in splits.test.sequences()]
    close = 0
    for mask, l_acc, end in zip(
        masks, groups.accuracy["answer"], groups.accuracy["end"], strict=True
    ):
        logits = _without_others(model, sentences, mask)
        if not _group_logits_within(data, mask, logits, bound):
            return "the logits of a group differ"
        lead = logits[0][:, FOUR] - logits[0][:, FIVE]
        expected = int(((lead > 0) == (test[:, 1] > test[:, 0]).numpy()).sum())
        unclear = int((np.abs(lead) <= 2 * bound).sum())
        if abs(l_acc * len(test) - expected) > unclear + 1e-9:
            return "l-acc differs"
        best_other = logits[1][:, :EOS].max(axis=1)
        ended = int((logits[1].argmax(axis=1) == EOS).sum())
        unclear_end = int((np.abs(logits[1][:, EOS] - best_other) <= 2 * bound).sum())
        if abs(end * len(test) - ended) > unclear_end + 1e-9:
            return "[EOS] l-acc differs"
        close += unclear + unclear_end
    labels = (test[:, 1] > test[:, 0]).numpy()
    for mask, ours in zip(masks, roc_auc(groups), strict=True):
        written = data.answer.heads[:, mask].sum(axis=1)
        areas_of_both = roc_auc_score(labels, written[:, 0]), roc_auc_score(~labels, written[:, 1])
        if not _as_good(ours, max(areas_of_both), written):
            return "ROC AUC differs"
    return f"agrees ({kind}{', some too close to call' if close else ''})"


def _group_logits_within(
    data: HeadData, mask: np.ndarray, logits: np.ndarray, bound: float
) -> bool:
    """Whether attributions, or what the metrics run instead, are the logits of the others off."""
    if data.group_logits is not None:
        found = {
            name: logits[0] for name, _, logits in data.group_logits(mask[None], lambda more: None)
        }
    else:
        found = {
            name: asked.heads[:, mask].sum(axis=1) + asked.rest
            for name, asked in data.asked.items()
        }
    expected = {"answer": logits[0][:, [FOUR, FIVE]], "end": logits[1][:, [EOS, *range(EOS)]]}
    return found.keys() == expected.keys() and _within(found, expected, bound)


def _both_answers(rng: Rng, n: int) -> torch.Tensor:
    counts = random_counts(rng, n, 7)
    counts[:2, :2] = [[1, 2], [2, 2]]
    return torch.from_numpy(counts)


def _without_others(model, sentences: list[list[int]], mask: np.ndarray) -> np.ndarray:
    """Logits at '=' and at the answer with only some heads' outputs left."""
    n_heads = model.cfg.n_heads

    def keep(z, hook):
        kept = torch.from_numpy(mask[hook.layer() * n_heads :][:n_heads])
        return z * kept[None, None, :, None]

    hooks = [(f"blocks.{layer}.attn.hook_z", keep) for layer in range(model.cfg.n_layers)]
    return _on_sequences(model, sentences, hooks).double().numpy()


def _two_layers(rng: Rng):
    """A model to which the algebra of counts does not apply."""
    model = make_model(
        dict(
            d_model=6, d_head=2, n_heads=2, n_layers=2, n_ctx=32, d_vocab=8, d_mlp=8,
            act_fn="relu", normalization_type=rng.choice([None, "LN"]), device="cpu",
            dtype=torch.float64, init_weights=False,
        ),
    )  # fmt: skip
    for parameter in model.parameters():
        parameter.data = torch.from_numpy(0.7 * rng.standard_normal(parameter.shape))
    return model


def _as_good(ours: float, expected: float, written: np.ndarray) -> bool:
    """Equal, or apart by what scores of equal size but for rounding can make."""
    if abs(ours - expected) <= 1e-12:
        return True
    gaps = np.diff(np.sort(written, axis=0), axis=0)
    return bool((gaps <= 1e-12 * np.abs(written).max()).any())


# --- d. Shapley values and interactions against their definitions ---------------------------------


def attack_shapley(cases: int, seed: int) -> Counter[str]:
    """Random games and the groups of real models against all orders of arrival."""
    return each_case(_shapley_case, cases, seed)


def _shapley_case(rng: Rng) -> str:
    if rng.random() < 0.25:
        return _shapley_of_a_model(rng)
    n = int(rng.integers(2, 7))
    values = rng.standard_normal(2**n)
    kind = int(rng.integers(4))
    if kind == 1:
        values = rng.integers(0, 3, 2**n) / 2.0
    elif kind == 2:  # more heads are worth more, as of a good model
        values = np.bitwise_count(np.arange(2**n)) + 0.1 * values
    elif kind == 3:
        values = 1e6 * values + 1e5
    if not _same_shapley(shapley_values(values), shapley_interactions(values), values):
        return "differs on a random game"
    return f"agrees on a random game of {n}"


def _shapley_of_a_model(rng: Rng) -> str:
    model, _, config = random_model(rng, largest_score=300.0)
    train, test = _both_answers(rng, 30), _both_answers(rng, 20)
    splits = Splits(Split("train", train), Split("validation", test), Split("test", test))
    analysis = analyze_heads(model, splits)
    if config.n_heads == 1:
        return "agrees on a model of 1 head" if len(analysis.groups()) == 1 else "groups differ"
    table = analysis.groups(progress=False).set_index("mask")
    labels = (test[:, 1] > test[:, 0]).numpy()
    sentences = [sentence(row, rng) for row in test.numpy()]
    bias = _without_others(model, sentences, np.zeros(config.n_heads, dtype=bool))
    majority = bool((train[:, 1] > train[:, 0]).double().mean() > 0.5)
    empty = {
        "l_acc": ((bias[0][:, FOUR] > bias[0][:, FIVE]) == labels).mean(),
        "roc_auc": 0.5,
        "s_acc": (labels == majority).mean(),
        "eos_l_acc": (bias[1].argmax(axis=1) == EOS).mean(),
    }
    _, bound = _bounds(NumpyModel.of_hooked_transformer(model), torch.float64)
    for number in rng.integers(1, 2**config.n_heads, 3).tolist():
        mask = np.array([number >> head & 1 == 1 for head in range(config.n_heads)])
        logits = _without_others(model, sentences, mask)
        lead = logits[0][:, FOUR] - logits[0][:, FIVE]
        apart = abs(table["l_acc"][number] - ((lead > 0) == labels).mean())
        if apart > (np.abs(lead) <= 2 * bound).mean() + 1e-9:
            return "a mask stands for another group"
    for metric in METRICS:
        values = np.array([empty[metric], *table[metric].loc[range(1, 2**config.n_heads)]])
        if not _same_shapley(analysis.shapley(metric), analysis.interactions(metric), values):
            return f"differs on a model, {metric}"
    return f"agrees on a model of {config.n_heads} heads"


def _same_shapley(ours: np.ndarray, interactions: np.ndarray, values: np.ndarray) -> bool:
    bound = 1e-12 * max(1.0, float(np.abs(values).max()))
    n = len(ours)
    expected = by_orders(lambda members: values[_number(members)], range(n))
    if not _within(ours, np.array([expected[player] for player in range(n)]), bound):
        return False
    if not _within(np.diag(interactions), ours, bound):
        return False
    for i, j in itertools.combinations(range(n), 2):
        expected_pair = interaction_by_orders(values, n, i, j)
        if max(abs(interactions[pair] - expected_pair) for pair in ((i, j), (j, i))) > 4 * bound:
            return False
    return True


def by_orders(value: Callable[[frozenset], float], players: Sequence) -> dict:
    """Shapley values by their definition: what a player adds, over all orders of arrival."""
    known = {
        frozenset(members): value(frozenset(members))
        for size in range(len(players) + 1)
        for members in itertools.combinations(players, size)
    }
    gains = dict.fromkeys(players, 0.0)
    for order in itertools.permutations(players):
        present: frozenset = frozenset()
        for player in order:
            joined = present | {player}
            gains[player] += known[joined] - known[present]
            present = joined
    return {player: gain / math.factorial(len(players)) for player, gain in gains.items()}


def interaction_by_orders(values: np.ndarray, n: int, i: int, j: int) -> float:
    """The interaction of a pair by its recursion, which has Shapley values only.

    It is the value of the pair as one player, less that of each in the game without the other.
    """
    others = [player for player in range(n) if player not in (i, j)]

    def value(members: frozenset) -> float:
        return values[_number(members)]

    def value_with_pair(members: frozenset) -> float:
        single = _number(member for member in members if member != "pair")
        return values[single | (1 << i | 1 << j if "pair" in members else 0)]

    together = by_orders(value_with_pair, [*others, "pair"])["pair"]
    return together - by_orders(value, [*others, i])[i] - by_orders(value, [*others, j])[j]


def _number(members) -> int:
    return sum(1 << member for member in members)


# --- e. handcrafted models and count read-outs ----------------------------------------------------


def attack_handcrafted(cases: int, seed: int) -> Counter[str]:
    """Handcrafted models, their parameters drawn, against whole-number arithmetic."""
    return each_case(_handcrafted_case, cases, seed)


def _handcrafted_case(rng: Rng) -> str:
    dtype = torch.float64 if rng.random() < 0.5 else torch.float32
    kind = str(rng.choice(["minimal", "minimal, no skip", "ensemble", "cooperative"]))
    most = 200
    if kind == "cooperative":
        scale = 10 ** rng.uniform(2, 5)
        # "Counts well below the scale": a tenth of it, here.
        most = int(scale / 10)
        model = cooperative_model(scale=scale, dtype=dtype)
    else:
        # Where the model is said to be right: N from 10 to 30, epsilon from 1e-4 to 1e-3.
        options = dict(n=rng.uniform(10, 30), epsilon=10 ** rng.uniform(-4, -3), dtype=dtype)
        if kind == "ensemble":
            model = ensemble_model(int(rng.integers(1, 6)), **options)
        else:
            model = minimal_model(skip=kind == "minimal", **options)
    counts = np.concatenate([random_counts(rng, 200, most), random_counts(rng, 50, 5)])
    data = torch.from_numpy(counts)
    answers = np.where(counts[:, 1] > counts[:, 0], FOUR, FIVE)
    with torch.no_grad():
        for run in (model_logits, compact_logits):
            if not (run(model, data).argmax(dim=-1).numpy() == answers).all():
                return f"{kind}: wrong answer"
            if not (run(model, data, "answer").argmax(dim=-1) == EOS).all():
                return f"{kind}: does not end"
    for n0, n1, _ in counts[:20].tolist():
        if right_answer(n0, n1) != ("4" if n1 > n0 else "5"):
            return "right_answer differs"
    return f"{kind}: right"


def attack_readouts(cases: int, seed: int) -> Counter[str]:
    """Count inequalities against the sign of the probe on head outputs computed by NumPy."""
    return each_case(_readout_case, cases, seed)


def _readout_case(rng: Rng) -> str:
    model, _, config = random_model(rng)
    oracle = NumpyModel.of_hooked_transformer(model)
    head = int(rng.integers(config.n_heads))
    counts = np.concatenate([random_counts(rng, 12, 9), random_counts(rng, 4, 200)])
    sentences = [sentence(row, rng) for row in counts]
    outputs = np.stack([oracle.run(tokens, [len(tokens) - 2])[0][0] for tokens in sentences])
    z = outputs[:, head]
    labels = counts[:, 1] > counts[:, 0]
    if rng.random() < 0.3 and labels.any() and not labels.all():
        probe = LinearSVM().fit(z, labels)
        weights, bias = probe.coef_[0], float(probe.intercept_[0])
    else:
        weights, bias = rng.standard_normal(config.d_head), float(rng.standard_normal())
        # A read-out that is balanced on these sentences decides, rather than always say the same.
        bias = float(-np.median(z @ weights)) if rng.random() < 0.5 else bias
    form = CountForm.from_models([model])
    data = torch.from_numpy(counts)
    z_bound, bound = _bounds(oracle, torch.float64)
    written = readout(form, head, weights, bias)
    values = z @ weights + bias
    clear = np.abs(values) > z_bound * (np.abs(weights).sum() + abs(bias))
    if not (written.decide(data) == (values > 0))[clear].all():
        return "a read-out differs from its probe"
    if not _coefficients_decide(written, oracle, head, counts, values, clear):
        return "the written coefficients differ from the probe"
    margins = _head_and_bias(oracle, outputs, head)
    clear_margin = np.abs(margins) > 2 * bound
    if not (learned_readout(form, head).decide(data) == (margins > 0))[clear_margin].all():
        return "the model's own read-out differs"
    if not (clear.all() and clear_margin.all()):
        return "agrees (some too close to call)"
    decides = (values > 0).any() and not (values > 0).all()
    return "agrees (both answers)" if decides else "agrees (one answer)"


def _coefficients_decide(written, oracle: NumpyModel, head: int, counts, values, clear) -> bool:
    """Whether α + β·n has the probe's sign, where no weight is lost beside a larger one."""
    scores = oracle.scores[head, EQUALS, :EQUALS]
    if np.ptp(scores) > 20:
        return True
    alpha, *betas = written.coefficients
    terms = np.column_stack([np.full(len(counts), alpha), counts * np.array(betas)])
    sums = terms.sum(axis=1)
    certain = clear & (np.abs(sums) > 1e-9 * np.abs(terms).sum(axis=1))
    return bool(((sums > 0) == (values > 0))[certain].all())


def _head_and_bias(oracle: NumpyModel, outputs: np.ndarray, head: int) -> np.ndarray:
    """By how much '4' leads '5' where only one head writes into the residual stream of '='."""
    stream = oracle.stream[EQUALS] + oracle.b_O + outputs[:, head] @ oracle.W_O[head]
    logits = stream @ oracle.W_U + oracle.b_U
    return logits[:, FOUR] - logits[:, FIVE]


# --- f. language and data set ---------------------------------------------------------------------

# A sentence as far as a text goes along with the grammar: where the match ends, the text departs.
GRAMMAR = re.compile(r"(?:\[BOS\])?([012]*)(=(?:([45])(\[EOS\])?)?)?")
PIECES = re.compile(r"\[BOS\]|\[EOS\]|[0-2=45]")
IDS = {"[BOS]": 0, "0": 1, "1": 2, "2": 3, "=": 4, "4": 5, "5": 6, "[EOS]": 7}
TOKENIZER = count01_tokenizer()


def attack_language(cases: int, seed: int) -> Counter[str]:
    """Texts, sentences or not, against a regular expression and `str.count`."""
    return each_case(_language_case, cases, seed)


def _language_case(rng: Rng) -> str:
    text = _random_text(rng)
    match = GRAMMAR.match(text)
    assert match is not None  # it matches the empty text, too
    body, rest, answer, end = match.groups()
    if not _pieces_agree(text):
        return "cut into tokens differently"
    if match.end() < len(text) or rest is None:
        for read in (parse, encode, validate):
            try:
                read(text)
            except MalformedSentenceError as error:
                if error.position != match.end() or str(error.position) not in str(error):
                    return "refused at another position"
            else:
                return "accepted a malformed text"
        return "refused, at the right position"
    counts = tuple(body.count(digit) for digit in "012")
    found = parse(text)
    if (found.counts, found.answer, found.ended) != (counts, answer, end is not None):
        return "parsed differently"
    ids = [0, *(IDS[digit] for digit in body), 4]
    ids += [IDS[answer]] if answer else []
    ids += [7] if end else []
    whole = "[BOS]" + text.removeprefix("[BOS]")
    if encode(text) != ids or decode(ids) != whole or decode(np.array(ids)) != whole:
        return "encoded or decoded differently"
    expected = "4" if counts[1] > counts[0] else "5"
    if (found.right_answer, right_answer(*counts[:2])) != (expected, expected):
        return "another right answer"
    return _validated(text, answer, expected)


def _validated(text: str, answer: str | None, expected: str) -> str:
    try:
        validate(text)
    except MalformedSentenceError as error:
        unanswered = answer is None and error.position == len(text)
        return "read, without an answer" if unanswered else "a sentence was refused"
    except WrongAnswerError:
        return "read, answer wrong" if answer != expected else "a right answer was refused"
    return "read, answer right" if answer == expected else "a wrong answer was accepted"


def _random_text(rng: Rng) -> str:
    """Write a sentence, or something like one: a part exchanged, lost or added."""
    body = rng.choice(["0", "1", "2"], rng.integers(0, 12)).tolist()
    pieces = [
        *rng.choice(["", "[BOS]"], 1),
        *body,
        "=",
        *rng.choice(["", "4", "5", "4", "5"], 1),
    ]
    if pieces[-1] and rng.random() < 0.5:
        pieces.append("[EOS]")
    strange = [
        "[BOS]",
        "[EOS]",
        "=",
        "4",
        "5",
        "3",
        "x",
        " ",
        "\n",
        "[",
        "]",
        "[bos]",
        "٠",
        "²",
        "é",
    ]
    for _ in range(int(rng.integers(0, 3))):
        place = int(rng.integers(0, len(pieces) + 1))
        until = place + int(rng.integers(0, 2))
        pieces[place:until] = [str(rng.choice(strange))] if rng.random() < 0.7 else []
    return "".join(pieces)


def _pieces_agree(text: str) -> bool:
    """Any text is cut into the pieces of the vocabulary, or refused, also by the tokenizer."""
    ids, position = [], 0
    while match := PIECES.match(text, position):
        ids.append(IDS[match.group()])
        position = match.end()
    if position < len(text):
        try:
            split_into_tokens(text)
        except MalformedSentenceError as error:
            return error.position == position
        return False
    if [int(token) for token in split_into_tokens(text)] != ids or decode(ids) != text:
        return False
    once = ids[1:] if ids[:2] == [0, 0] else ids
    return TOKENIZER(text)["input_ids"] == once


def attack_dataset(cases: int, seed: int) -> Counter[str]:
    """Random splits, written out, against `str.count` on their text."""
    return each_case(_dataset_case, cases, seed)


def _dataset_case(rng: Rng) -> str:
    low, low2 = (int(rng.integers(0, 9)) for _ in range(2))
    spec = SplitSpec(
        size=int(rng.integers(1, 20)),
        zeros_and_ones=(low, low + int(rng.integers(0, 9))),
        twos=(low2, low2 + int(rng.integers(0, 9))),
    )
    seed = int(rng.integers(2**32))
    test = make_splits(seed, test=spec).test
    again = make_splits(seed, train=spec, test=spec).test
    texts = [decode(sequence.tolist()) for sequence in test.sequences()]
    if texts != [decode(sequence.tolist()) for sequence in again.sequences()]:
        return "another split when the training split changes"
    counts = [tuple(text.count(digit) for digit in "012") for text in texts]
    if counts != [tuple(row) for row in test.counts.tolist()] or len(texts) != spec.size:
        return "other counts in the text"
    for text, (n0, n1, n2), label, tie in zip(
        texts, counts, test.labels.tolist(), test.ties.tolist(), strict=True
    ):
        if not re.fullmatch(rf"\[BOS\][012]*={4 if n1 > n0 else 5}\[EOS\]", text):
            return "not the sentence of its counts"
        if label != (n1 > n0) or tie != (n1 == n0):
            return "another label"
        smallest, largest = spec.zeros_and_ones
        inside = smallest <= min(n0, n1) and max(n0, n1) <= largest
        if not inside or not spec.twos[0] <= n2 <= spec.twos[1]:
            return "outside its range"
    return "agrees"
