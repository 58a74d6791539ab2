"""Labels as `analysis.labels(metric)` gives them, by fixed bounds in place of intervals."""

from types import SimpleNamespace

import numpy as np
import pandas as pd

from count01_lens.heads.copies import apartness


def labels(analysis, metric, bound=0.002):
    """Heads and pairs with labels; intervals are as wide as the bound says."""
    matrix, n = analysis.interactions(metric), len(analysis.heads)
    apart = apartness(analysis.with_groups().known_groups.values(metric))
    worth = np.diag(matrix)
    words = [
        "facilitating" if phi > bound else "interfering" if phi < -bound
        else "irrelevant" if abs(phi) < bound / 2 else "undecided"
        for phi in worth
    ]  # fmt: skip
    heads = pd.DataFrame(
        {"head": range(n), "label": words, "shapley": worth, "low": worth - bound,
         "high": worth + bound}
    )  # fmt: skip
    first, second = np.triu_indices(n, 1)
    values = matrix[first, second]
    both = (np.array(words)[first] == "facilitating") & (np.array(words)[second] == "facilitating")
    kinds = np.where(
        values < -bound, "redundant", np.where((values > bound) & both, "cooperating", "")
    )
    pairs = pd.DataFrame(
        {"first": first, "second": second, "label": kinds, "interaction": values,
         "low": values - bound, "high": values + bound, "copy_share": 1 - np.minimum(1, apart[first, second])}
    )  # fmt: skip
    return SimpleNamespace(heads=heads, pairs=pairs)
