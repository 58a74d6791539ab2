"""What each oracle is asked, how often, and what may come of it."""

from tests.attacks.oracles import (
    attack_dataset,
    attack_forward,
    attack_groups,
    attack_handcrafted,
    attack_language,
    attack_probes,
    attack_readouts,
    attack_roc_auc,
    attack_shapley,
)
from tests.attacks.patched_runs import WAYS, attack_patches

KINDS = ("minimal", "minimal, no skip", "ensemble", "cooperative")
# By name: the attack, what is allowed to come of it, cases in the tests and in `make stress`, and
# what it does, in words for readers.
ATTACKS = {
    "forward": (
        attack_forward,
        {
            f"agrees ({dtype}{note})"
            for dtype in ("float32", "float64")
            for note in ("", ", fallback to softmax", ", a decision is too close to call")
        },
        60,
        3000,
        "Random models, run on sequences, compact and in closed form, against a forward pass written "
        "from scratch in NumPy: head outputs, logits and decisions at '=' and at the answer",
    ),
    "probes": (
        attack_probes,
        {"the minimum of scikit-learn", "lower than scikit-learn"},
        60,
        2000,
        "Linear SVMs, alone and many at once, against scikit-learn's LinearSVC at the same objective",
    ),
    "roc-auc": (
        attack_roc_auc,
        {"agrees", "agrees (equal scores with both labels)"},
        100,
        5000,
        "ROC AUC of scores with many kinds of ties against scikit-learn's roc_auc_score",
    ),
    "groups": (
        attack_groups,
        {
            "agrees (two layers)",
            "agrees (float64)",
            "agrees (float64, some too close to call)",
            "agrees (float32)",
            "agrees (float32, some too close to call)",
        },
        30,
        2000,
        "l-acc, '[EOS]' l-acc and ROC AUC of random groups of heads against really running the "
        "model with the other heads' outputs set to zero",
    ),
    "shapley": (
        attack_shapley,
        {f"agrees on a random game of {n}" for n in range(2, 7)}
        | {"agrees on a model of 1 head"}
        | {f"agrees on a model of {n} heads" for n in range(2, 7)},
        40,
        1500,
        "Shapley values and interactions of random games and real models against all orders of arrival",
    ),
    "handcrafted": (
        attack_handcrafted,
        {f"{kind}: right" for kind in KINDS},
        30,
        1500,
        "Handcrafted models of random parameters on 250 random sentences each against whole-number "
        "arithmetic",
    ),
    "readouts": (
        attack_readouts,
        {"agrees (both answers)", "agrees (one answer)", "agrees (some too close to call)"},
        60,
        3000,
        "Inequalities over counts against the sign of the probe on head outputs computed by NumPy",
    ),
    "language": (
        attack_language,
        {
            "read, answer right",
            "read, answer wrong",
            "read, without an answer",
            "refused, at the right position",
        },
        400,
        20_000,
        "Texts, sentences or not, against a regular expression and str.count",
    ),
    "dataset": (
        attack_dataset,
        {"agrees"},
        20,
        1000,
        "Random splits, written out as text, against str.count and a regular expression",
    ),
    "patches": (
        attack_patches,
        {f"agrees ({way})" for way in (*WAYS, "list of hooks")},
        40,
        2000,
        "Attention patches of models with one layer or two, windows, grouped or rotary heads, on padded "
        "and masked batches, with caches in turn, in threads and nested, against rows written by hand",
    ),
}
