"""Direct and total effect of heads, and how much the rest of a model makes up for one.

Both say by how much a head lifts the logit of the right answer above the mean of the other choices,
on average over test prompts:

* **direct effect**: by what it writes into the logits (direct logit attribution, every norm frozen
  at its scale on the full model), less what would be written in its place;
* **total effect**: by what is lost if the model is really run without it;
* **self-repair** = direct − total: positive where later layers or the final norm make up for it,
  negative where later heads need it.

Where heads reach the logits through nothing but the output matrix, the two are the same.
"""

import numpy as np
from jaxtyping import Float

from count01_lens.common.progress import counted
from count01_lens.common.types import Array
from count01_lens.heads.head_data import HeadData

EFFECTS = ("direct_effect", "total_effect", "self_repair")


def effects(data: HeadData, *, progress: bool | None = False) -> dict[str, Float[Array, " head"]]:
    """Measure direct effect, total effect and self-repair of every head."""
    asked = data.answer.gains.in_range()
    direct = asked.mean_lead(asked.heads.swapaxes(0, 1)).mean(axis=1)
    total = direct if data.group_logits is None else _total(data, progress)
    return dict(zip(EFFECTS, (direct, total, direct - total), strict=True))


def _total(data: HeadData, progress: bool | None) -> Float[Array, " head"]:
    assert data.group_logits is not None
    asked = data.answer
    whole = float(asked.mean_lead(asked.logits).mean())
    left = np.empty(data.n_heads)
    total = data.n_heads * data.n_asked
    with counted(total, "running the model without each head", progress) as advance:
        masks = ~np.eye(data.n_heads, dtype=bool)
        for name, numbers, logits in data.group_logits(masks, advance):
            if name == "answer":
                left[numbers] = asked.mean_lead(logits).mean(axis=1)
    return whole - left
