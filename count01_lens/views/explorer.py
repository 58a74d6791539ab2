"""`Explorer(model)`: the whole model live in a notebook.

An anywidget: one ES module that computes in the browser, in JupyterLab, VS Code, Colab and marimo.
Python drives it and reads it by traits, and computes nothing unless it is asked to.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import anywidget
import pandas as pd
import traitlets

from count01_lens.common.types import HookedTransformer
from count01_lens.heads.analysis import HeadAnalysis
from count01_lens.tasks.counting_task import CountingTask
from count01_lens.tasks.dataset import Splits
from count01_lens.views.attention_view import AttentionView, compare_attention
from count01_lens.views.explored_heads import head_changes, model_changes
from count01_lens.views.explorer_code import Choices, start_counts
from count01_lens.views.explorer_data import Explored, explorer_data
from count01_lens.views.explorer_module import explorer_module, explorer_style


class _Given(traitlets.TraitType):  # type: ignore[misc]
    """Anything but None, which traitlets would let pass unchecked; `Explorer` checks the rest."""


class Explorer(anywidget.AnyWidget):  # type: ignore[misc]
    """Patch a model by hand, head by head, and see everything that follows from it.

    What you set in the page is set here, and the other way round. An impossible value raises a
    `TraitError` and changes nothing.

    Args:
        model: one that can be run on counts; `why_not_counts` tells.
        task: a counting task, or a data set of Count01; by default the model's own.
        analysis: of the same model and task. With all groups (`with_groups()`), heads have Shapley
            values and neighbours by interaction.
        start: traits to begin with, such as `w01=1.0`.

    Attributes:
        heads: numbers of the heads that are patched; None for all.
        w01: attention to one '0' divided by attention to one '1'; None keeps each head's own.
            Likewise `w02`.
        ratios: the same for any counting task: attention to one of its first symbol divided by
            attention to one of another symbol, by that symbol.
        weights: by token, instead of ratios: see `set_attention`; None for ratios.
        others: whether '[BOS]' and '=' get nothing ("zero") or "keep" their weights.
        off: numbers of the heads that are switched off.
        sentence: such as "0110212=".
        code: Python that reproduces what is shown.

    Example:
        >>> explorer = cl.Explorer(cl.example_model())
        >>> explorer.w01, explorer.heads = 1.0, [3]
        >>> print(explorer.code.splitlines()[3])
        with cl.patch_attention(model, w01=1.0, heads=[3]):
    """

    _esm = explorer_module()
    _css = explorer_style()
    data = traitlets.Dict().tag(sync=True)
    _state = traitlets.Dict().tag(sync=True)

    heads = traitlets.Any(None, allow_none=True)
    w01 = traitlets.Any(None, allow_none=True)
    w02 = traitlets.Any(None, allow_none=True)
    ratios = _Given({})
    weights = traitlets.Any(None, allow_none=True)
    others = _Given("zero")
    off = _Given([])
    sentence = _Given("")
    code = traitlets.Unicode("", read_only=True)

    def __init__(
        self,
        model: HookedTransformer,
        task: CountingTask | Splits | None = None,
        analysis: HeadAnalysis | None = None,
        **start: Any,
    ):
        explored = Explored(model, task, analysis)
        self._form, self._task = explored.checked()
        data = explorer_data([explored])
        language, most = self._form.language, data["models"][0]["language"]["most"]
        counts = start_counts(most, model.cfg.n_ctx)
        self.model = model
        self._task_code = data["models"][0]["pythonTask"]
        self._busy = False
        cfg = model.cfg
        self._choices = Choices(
            language, cfg.n_heads, cfg.n_ctx, None, {}, None, "zero", (), tuple(counts)
        )
        super().__init__(data=data, _state=self._choices.to_json())
        self._show(self._choices)
        for name, value in start.items():
            if name not in _SETTABLE:
                raise TypeError(f"expected any of {', '.join(_SETTABLE)}, got {name!r}")
            setattr(self, name, value)

    @traitlets.validate("heads", "w01", "w02", "ratios", "weights", "others", "off", "sentence")  # type: ignore[untyped-decorator]
    def _checked(self, proposal: dict[str, Any]) -> Any:
        """Refuse what cannot be; give the value as the page will have it."""
        name, value = proposal["trait"].name, proposal["value"]
        now = _value_of(self._choices, name)
        if self._busy or (type(value) is type(now) and value == now):  # True is no 1.0
            return value
        try:
            return _value_of(self._with(name, value), name)
        except (ValueError, TypeError) as error:
            raise traitlets.TraitError(str(error)) from error

    @traitlets.observe("heads", "w01", "w02", "ratios", "weights", "others", "off", "sentence")  # type: ignore[untyped-decorator]
    def _set(self, change: dict[str, Any]) -> None:
        name, value = change["name"], change["new"]
        if not self._busy and value != _value_of(self._choices, name):
            self._show(self._with(name, value))

    @traitlets.observe("_state")  # type: ignore[untyped-decorator]
    def _moved(self, change: dict[str, Any]) -> None:
        """Take over what was done in the page."""
        if not self._busy and change["new"] != self._choices.to_json():
            self._show(self._choices.from_json(change["new"]))

    def __repr__(self) -> str:
        chosen = self._choices
        heads = "all heads" if chosen.heads is None else f"heads {list(chosen.heads)}"
        patched = f"{heads} patched" if chosen.patches else "nothing patched"
        return f"Explorer({chosen.n_heads} heads; {patched}, off: {list(chosen.off)})"

    @property
    def table(self) -> pd.DataFrame:
        """A row per head: category, s-acc and l-acc before and after, computed by Python."""
        return head_changes(self._form, self._task, self._choices)

    @property
    def accuracy(self) -> pd.DataFrame:
        """The whole model on the test split, original and patched, computed by Python."""
        return model_changes(self._form, self._task, self._choices)

    def show_attention(self) -> AttentionView:
        """Show the attention of the sentence before and after the patch, with circuitsvis."""
        chosen = self._choices
        return compare_attention(
            self.model,
            chosen.sentence,
            w01=self.w01,
            w02=self.w02,
            heads=chosen.heads,
            others=chosen.others,
        )

    def _with(self, name: str, value: Any) -> Choices:
        return _changed(self._choices, name, value)

    def _show(self, choices: Choices) -> None:
        """Put choices into all traits at once; those who listen hear of it when all are set."""
        with self.hold_trait_notifications(), self._ours():
            self._choices = choices
            self._state = choices.to_json()
            for name in _SETTABLE:
                setattr(self, name, _value_of(choices, name))
            self.set_trait("code", choices.code(None, self._task_code))

    @contextmanager
    def _ours(self) -> Iterator[None]:
        self._busy = True
        try:
            yield
        finally:
            self._busy = False


AttentionPatcher = Explorer

_SETTABLE = ("heads", "w01", "w02", "ratios", "weights", "others", "off", "sentence")


def _changed(choices: Choices, name: str, value: Any) -> Choices:
    if name == "sentence":
        return choices.with_sentence(value)
    if name in ("w01", "w02"):
        if value is None and name[-1] not in choices.ratios:
            return choices
        if choices.language.symbols[0] != "0":
            first = choices.language.symbols[0]
            raise ValueError(
                f"{name}: expected a task that counts '0', got one of {first!r}; set ratios"
            )
        return replace(choices, ratios={**choices.ratios, name[-1]: value})
    if name == "ratios":
        return replace(choices, ratios=dict(value or {}))
    if name in ("heads", "off"):
        value = tuple(value) if value else (None if name == "heads" else ())
    fields: dict[str, Any] = {name: value}
    return replace(choices, **fields)


def _value_of(choices: Choices, name: str) -> Any:
    if name in ("w01", "w02"):
        return choices.ratios.get(name[-1]) if choices.language.symbols[0] == "0" else None
    value = getattr(choices, name)
    if isinstance(value, tuple):
        return list(value)
    return dict(value) if name in ("ratios", "weights") and value is not None else value
