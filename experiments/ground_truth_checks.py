"""What was planted, held against the model by brute force; and what users do today.

Everything here goes through bare TransformerLens hooks and uses nothing of what is judged.
"""

from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from count01_lens.common.types import Array
from experiments.ground_truth_models import Planted

_TOGETHER = 64  # groups in one pass


def run_groups(
    planted: Planted, masks: Int[Array, " group"]
) -> Float[Array, "group prompt choice"]:
    """Logits of the choices with only the heads of each group: one pass per length of prompts."""
    model, question = planted.model, planted.task.questions["answer"]
    n_heads, sequences = model.cfg.n_heads, question.test.sequences()
    lengths = np.array([len(row) for row in sequences])
    logits = np.empty((len(masks), len(sequences), len(question.choices)))
    for length in np.unique(lengths):
        same = np.flatnonzero(lengths == length)
        tokens = torch.stack([sequences[i] for i in same])
        for start in range(0, len(masks), _TOGETHER):
            some = masks[start : start + _TOGETHER]
            kept = torch.tensor(some[:, None] >> np.arange(len(planted.words)) & 1)
            kept = kept.repeat_interleave(len(same), dim=0)

            def keep(z: Any, hook: Any, layer: int, kept: Any = kept) -> Any:
                here = kept[:, layer * n_heads : (layer + 1) * n_heads]
                return z * here[:, None, :, None]

            hooks = [
                (f"blocks.{layer}.attn.hook_z", partial(keep, layer=layer))
                for layer in range(model.cfg.n_layers)
            ]
            with torch.no_grad():
                found = model.run_with_hooks(tokens.repeat(len(some), 1), fwd_hooks=hooks)
            found = found[:, -1, list(question.choices)].double().numpy()
            logits[start : start + len(some), same] = found.reshape(len(some), len(same), -1)
    return logits


def right_answers(planted: Planted) -> Int[Array, " prompt"]:
    """The place of the right answer among the choices, of each test prompt."""
    question = planted.task.questions["answer"]
    return np.array([question.choices.index(one) for one in question.test.answers.tolist()])


def complaints(planted: Planted) -> list[str]:
    """Say what of the planted truth does not hold, prompt by prompt, over all groups of heads.

    This asks for more than `label_heads` can see: the decision on every prompt, not the mean.
    """
    n = len(planted.words)
    logits = run_groups(planted, np.arange(1 << n))
    decided = logits.argmax(axis=2)
    right = decided == right_answers(planted)
    found = [] if right[-1].all() else ["the whole model makes mistakes"]
    found += _about_slots(planted, right)
    masks, truth = np.arange(1 << n), planted.truth
    for i in range(n):
        without = masks[masks >> i & 1 == 0]
        before, after = right[without], right[without | 1 << i]
        if (i in truth.irrelevant) != bool((decided[without] == decided[without | 1 << i]).all()):
            found.append(
                f"head {i} ({planted.words[i]}): irrelevant is {i in truth.irrelevant}, not so"
            )
        only_harms = bool((after <= before).all() and (after < before).any())
        if (i in truth.interfering) != only_harms:
            found.append(f"head {i} ({planted.words[i]}): interfering is {i in truth.interfering}")
        for j in range(i):
            neither = without[without >> j & 1 == 0]
            one, other = decided[neither | 1 << i], decided[neither | 1 << j]
            both = decided[neither | 1 << i | 1 << j]
            same = bool((one == other).all() and (both == one).all())
            same = same and not {i, j} & {*truth.irrelevant}
            if ((j, i) in truth.copies) != same:
                found.append(f"heads {j} and {i}: copies is {(j, i) in truth.copies}, not so")
    return found


def _about_slots(planted: Planted, right: Bool[Array, "group prompt"]) -> list[str]:
    """Every slot is needed, and any one of its heads fills it; which pairs of slots cooperate."""
    found, n = [], len(planted.words)
    working = sorted(head for slot in planted.slots for head in slot)
    if working != list(planted.truth.facilitating):
        found.append(
            f"facilitating: slots have {working}, the truth has {planted.truth.facilitating}"
        )
    slot_of = {head: number for number, slot in enumerate(planted.slots) for head in slot}
    for i, j in planted.truth.cooperating:
        if slot_of.get(i) is None or slot_of.get(j) is None or slot_of[i] == slot_of[j]:
            found.append(f"heads {(i, j)}: cooperating, but not of two slots")
    for slot in planted.slots:
        without = (1 << n) - 1 - sum(1 << head for head in slot)
        if right[without].all():
            found.append(f"heads {slot} are not needed")
    for chosen in product(*planted.slots):
        everything = sum(1 << head for head in chosen)
        if not right[everything].all():
            found.append(f"heads {chosen} alone do not solve the task")
        for at, i in enumerate(chosen):
            for j in chosen[:at]:
                rest = everything & ~(1 << i | 1 << j)
                neither, one, other = (right[rest | head].sum() for head in (0, 1 << i, 1 << j))
                together = right[everything].sum() - neither
                pair = (min(i, j), max(i, j))
                said = pair in planted.truth.cooperating
                if said != bool(together > one + other - 2 * neither):
                    found.append(f"heads {pair}: cooperating is {said}, not so")
    return found


@dataclass(frozen=True, eq=False)
class SingleAblation:
    """What the whole model loses when one head is set to zero, by head.

    Attributes:
        accuracy: loss of accuracy.
        lead: loss of the mean logit difference of the right answer and the best other one.
        whole_lead: the mean logit difference of the whole model.
    """

    accuracy: Float[Array, " head"]
    lead: Float[Array, " head"]
    whole_lead: float


def ablate_single_heads(planted: Planted) -> SingleAblation:
    """Ablate head after head, as users do today."""
    n, answers = len(planted.words), right_answers(planted)
    everything = (1 << n) - 1
    logits = run_groups(planted, np.array([everything, *(everything ^ 1 << i for i in range(n))]))
    prompts = np.arange(len(answers))
    of_right = logits[:, prompts, answers]
    others = logits.copy()
    others[:, prompts, answers] = -np.inf
    lead = (of_right - others.max(axis=2)).mean(axis=1)
    accuracy = (logits.argmax(axis=2) == answers).mean(axis=1)
    return SingleAblation(accuracy[0] - accuracy[1:], lead[0] - lead[1:], float(lead[0]))
