"""The table of heads as people read it: what matters most comes first, numbers as words have them.

What does not fit the width of a screen is left out there, so the order is by importance.
"""

from typing import TYPE_CHECKING

import pandas as pd

from count01_lens.common.columns import Column, columns_of
from count01_lens.common.text import share
from count01_lens.heads.metrics import METRICS
from count01_lens.heads.tables import head_labels

if TYPE_CHECKING:
    from count01_lens.heads.analysis import HeadAnalysis

_FIRST = ("head", "category", "s_acc", "l_acc", "readout", "total_effect", "direct_effect")
_LEFT_OUT = ("layer", "learned_readout", "learned_readout_off")


def head_columns(analysis: "HeadAnalysis") -> list[Column]:
    """Write what is known of each head alone, the most important columns first."""
    table = analysis.table.drop(columns=list(_LEFT_OUT), errors="ignore")
    several = analysis.heads["layer"].nunique() > 1
    names = pd.Series(head_labels(analysis.heads), name="head") if several else table["head"]
    subsets = [f"s_acc_{name}" for name in analysis.data.answer.subsets]
    order = dict.fromkeys([*_FIRST, *subsets, "w01", "w02", *METRICS, *table.columns])
    shares = dict.fromkeys([*METRICS, *subsets, "readout_off"], share)
    shown = table.assign(head=names)[[name for name in order if name in table]]
    return columns_of(shown.to_dict("list"), shares)
