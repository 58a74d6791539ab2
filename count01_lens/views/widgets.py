"""`AttentionPatcher(model)`: set a model's attention with sliders, in a notebook.

Only wiring: `patching` computes, `patch_views` draws. Made of core ipywidgets, so that it works in
JupyterLab, VS Code and Colab.
"""

import math
from typing import Any

import ipywidgets as ipw

from count01_lens.common.text import number
from count01_lens.common.types import HookedTransformer
from count01_lens.heads.analysis import HeadAnalysis
from count01_lens.heads.metrics import CATEGORIES
from count01_lens.tasks.dataset import Splits
from count01_lens.tasks.prompts import Task
from count01_lens.views import patch_views
from count01_lens.views.attention_view import AttentionView, compare_attention
from count01_lens.views.patching import PatchSession

# 0 and ∞ at the ends, ten round values a decade between them.
_STEPS = (1, 1.25, 1.6, 2, 2.5, 3.2, 4, 5, 6.3, 8)
_BETWEEN = [float(f"{step}e{decade}") for decade in range(-4, 4) for step in _STEPS]
RATIOS = [0.0, *_BETWEEN, 1e4, math.inf]


class AttentionPatcher(ipw.VBox):  # type: ignore[misc]
    """A panel to patch the attention at '=' of a model, and to see what that does.

    Args:
        model: one that can be run on counts; `why_not_counts` tells.
        task: the data set; the paper's by default.
        analysis: of the same model and data set, if it is at hand: saves a second.

    Attributes:
        session: the state behind the panel; its `table` and `accuracy` are data frames.
        message: what is wrong with the last input, or "".
    """

    def __init__(
        self,
        model: HookedTransformer,
        task: Task | Splits | None = None,
        analysis: HeadAnalysis | None = None,
    ):
        self.session = PatchSession(model, task, analysis)
        self.session.update(w01=1.0, w02=math.inf)  # the paper's: '0' and '1' alike, '2' nothing
        self.message = ""
        self._make_controls()
        self._outputs, self._accuracy, self._heads = (ipw.HTML() for _ in range(3))
        self._attention, self._code, self._message = (ipw.HTML() for _ in range(3))
        super().__init__(self._arranged())
        self.draw()

    @property
    def code(self) -> str:
        """The `patch_attention` call that reproduces what is shown."""
        return self.session.code

    def show_attention(self) -> AttentionView:
        """Show the attention of the sentence before and after, with circuitsvis."""
        session, chosen = self.session, self.session.chosen
        w01, w02, others = chosen.w01, chosen.w02, chosen.others
        return compare_attention(
            session.model, session.sentence, w01=w01, w02=w02, heads=session.heads, others=others
        )

    def draw(self) -> None:
        """Show the state of the session."""
        for name in ("outputs", "accuracy", "heads", "attention", "code"):
            html = getattr(patch_views, f"{name}_html")(self.session)
            getattr(self, f"_{name}").value = html
        self._message.value = patch_views.message_html(self.message)

    def _make_controls(self) -> None:
        kinds = self.session.analysis.table["category"]
        counts = kinds.value_counts()
        several = [(f"all {len(kinds)} heads", "all")]
        several += [(f"{kind} ({counts[kind]})", kind) for kind in CATEGORIES if kind in counts]
        single = [(f"head {head}: {kind}", (head,)) for head, kind in enumerate(kinds)]
        wide = ipw.Layout(width="24em")
        self.heads_choice = ipw.Dropdown(
            options=[*several, *single], value="all", description="heads", layout=wide
        )
        self.w01, self.own_w01 = _ratio_controls("w01", 1.0)
        self.w02, self.own_w02 = _ratio_controls("w02", math.inf)
        style = {"button_width": "11.5em"}
        rest = [("get nothing", "zero"), ("keep their weights", "keep")]
        self.others = ipw.ToggleButtons(options=rest, description="[BOS], =", style=style)
        both = [("original", False), ("patched", True)]
        self.shown = ipw.ToggleButtons(options=both, value=True, description="show", style=style)
        self.sentence = ipw.Text(
            value=self.session.chosen.sentence,
            description="sentence",
            placeholder="such as 0110212=",
            continuous_update=False,
            layout=ipw.Layout(width="30em"),
        )
        for control in (
            self.heads_choice, self.w01, self.w02, self.own_w01, self.own_w02,
            self.others, self.shown, self.sentence,
        ):  # fmt: skip
            control.observe(self._changed, names="value")

    def _arranged(self) -> list[Any]:
        ratios = [ipw.HBox(pair) for pair in ([self.w01, self.own_w01], [self.w02, self.own_w02])]
        controls = ipw.VBox(
            [self.heads_choice, *ratios, self.others, self.shown, self._accuracy, self._code],
            layout=ipw.Layout(flex="1 1 34em", min_width="24em"),
        )
        picture = ipw.VBox([self._outputs], layout=ipw.Layout(flex="1 1 30em", min_width="20em"))
        top = ipw.HBox([controls, picture], layout=ipw.Layout(flex_flow="row wrap"))
        return [self._message, top, self._heads, self.sentence, self._attention]

    def _changed(self, change: Any) -> None:
        """Take over what the user did; what cannot be is said, not raised."""
        self.w01.disabled, self.w02.disabled = self.own_w01.value, self.own_w02.value
        try:
            self.session.update(
                heads=self.heads_choice.value,
                w01=None if self.own_w01.value else self.w01.value,
                w02=None if self.own_w02.value else self.w02.value,
                others=self.others.value,
                patched=self.shown.value,
                sentence=self.sentence.value,
            )
            self.message = ""
        except (ValueError, TypeError) as error:
            self.message = str(error)
        self.draw()


def _ratio_controls(name: str, value: float) -> tuple[Any, Any]:
    """Make a slider, and a box to tick where heads keep their own ratios."""
    slider = ipw.SelectionSlider(
        options=[(number(ratio, 3), ratio) for ratio in RATIOS],
        value=value,
        description=name,
        tooltip=f"attention of one 0 over that of one {name[-1]}",
        layout=ipw.Layout(width="26em"),
    )
    layout = ipw.Layout(width="7em")
    return slider, ipw.Checkbox(value=False, description=f"own {name}", indent=False, layout=layout)
