"""Bounds by which heads are put into words, and what counts as zero then: declared once."""

from dataclasses import dataclass

# What heads are called by the accuracy of their probe: the paper's bound, and ours for "close to a
# coin flip".
SUCCESSFUL, FAILED = 0.98, 0.60


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """Bounds in units of a metric, but for copies; a word needs an interval that is beyond them.

    They were fixed before the models were run that are judged by them: `head`, `pair` and `copies`
    on models whose heads were planted (docs/ground_truth.md), `mean` with the first reproduction,
    `beyond` on the handcrafted and the bundled models.

    Attributes:
        head: of what a head is worth, and of how much it changes anything.
        pair: of the interaction of two heads.
        copies: of how unlike two heads are, as a share of what the pair changes.
        mean: of the mean interaction over all pairs.
        beyond: of what groups reach more than groups of independent heads.
        level: of intervals; those of all heads, and of all pairs, hold together.
    """

    head: float = 0.01
    pair: float = 0.005
    copies: float = 0.1
    mean: float = 0.01
    beyond: float = 0.005
    level: float = 0.95


THRESHOLDS = Thresholds()
