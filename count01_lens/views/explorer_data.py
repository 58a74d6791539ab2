"""What the explorer is given: tables of models, counts of splits, and what an analysis knows.

The explorer's module (data/explorer) computes everything else in the browser. Numbers are packed as
little-endian bytes in base64: a model of 16 heads and 8,500 sentences take 80 kB.
"""

import ast
import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from count01_lens.common.types import Array
from count01_lens.counts.applies import why_not_counts
from count01_lens.counts.closed_form import CountForm
from count01_lens.heads.thresholds import FAILED, SUCCESSFUL
from count01_lens.models.stored import Model
from count01_lens.models.task_of import counting_task_for, reads_a_counting_task
from count01_lens.tasks.counting import CountingLanguage
from count01_lens.tasks.counting_task import CountingTask
from count01_lens.tasks.dataset import Split, Splits

if TYPE_CHECKING:  # an explored model may have one; most have none, and need nothing of it
    from count01_lens.heads.analysis import HeadAnalysis

_TYPES = {"f": "f8", 1: "u1", 2: "u2", 4: "u4"}
_OPERATIONS: dict[type, str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Gt: ">", ast.GtE: ">=", ast.Lt: "<",
    ast.LtE: "<=", ast.Eq: "==", ast.NotEq: "!=", ast.And: "and", ast.Or: "or", ast.Not: "not",
    ast.USub: "neg",
}  # fmt: skip
_MEASURED = ("s_acc", "l_acc", "roc_auc", "eos_l_acc")


@dataclass(frozen=True, eq=False)
class Explored:
    """A model that can be explored.

    Attributes:
        model: one that counts apply to.
        task: a counting task; by default the model's own, or that of the analysis.
        analysis: of the same model and task: Shapley values and interactions, if it has them.
        name: what people call it.
        python: the expression that gives this model, for code that can be copied; None where
            it is just called `model`.
    """

    model: Model
    task: CountingTask | Splits | None = None
    analysis: "HeadAnalysis | None" = None
    name: str = "model"
    python: str | None = None

    def checked(self) -> tuple[CountForm, CountingTask]:
        """Return tables and task; raise with what works instead where counts do not apply."""
        task = self.task
        if task is None and self.analysis is not None:
            found = self.analysis.task
            task = found if isinstance(found, CountingTask) else None
        task = counting_task_for(self.model, task)
        reason = why_not_counts(self.model, task)
        if reason is not None:
            raise ValueError(
                f"model: expected one that can be run on counts, got one that cannot: {reason}; "
                "cl.analyze_heads, cl.show_attention, cl.show_attribution and cl.ablate_heads work "
                "on it, and so do count01-lens analyze and view"
            )
        if self.analysis is not None:
            self.analysis.check_made_from(self.model, task)
        return CountForm.from_models([self.model], task=task), task


def explorer_data(explored: Sequence[Explored]) -> dict[str, Any]:
    """Pack models; those that share their data have it once."""
    splits: list[dict[str, Any]] = []
    models = []
    for each in explored:
        form, task = each.checked()
        split = {name: _split(getattr(task.splits, name)) for name in ("train", "test")}
        if split not in splits:
            splits.append(split)
        tables = {
            "scores": form.scores,
            "values": form.values,
            "logitWeights": form.logit_weights,
            "logitBias": form.logit_bias,
        }
        models.append(
            {
                "name": each.name,
                "python": each.python,
                "pythonTask": _task_code(each, task),
                "task": task.name,
                "nHeads": form.scores.shape[1],
                "dHead": form.values.shape[-1],
                "nCtx": each.model.cfg.n_ctx,
                "language": _language(form.language, task),
                "tables": {name: _packed(table[0].numpy()) for name, table in tables.items()},
                "split": splits.index(split),
                "analysis": None if each.analysis is None else _known(each.analysis),
            }
        )
    bounds = {"successful": SUCCESSFUL, "failed": FAILED}
    return {"format": 1, "bounds": bounds, "splits": splits, "models": models}


def _task_code(each: Explored, task: CountingTask) -> str:
    """How code that can be copied names the task."""
    own = counting_task_for(each.model)
    if own.language == task.language and torch.equal(
        own.splits.test.counts, task.splits.test.counts
    ):
        return "cl.task_of(model)" if reads_a_counting_task(each.model) else "cl.Count01()"
    if isinstance(each.task, Splits):
        return "cl.Count01(splits)"
    return "analysis.task" if each.task is None else "task"


def _language(language: CountingLanguage, task: CountingTask) -> dict[str, Any]:
    splits = task.splits.train, task.splits.test
    most = np.max([split.counts.numpy().max(axis=0) for split in splits], axis=0)
    texts = language.rule.texts
    return {
        "symbols": list(language.symbols),
        "answers": list(language.answers),
        "rule": None if texts is None else [_tree(text, language.symbols) for text in texts],
        "texts": texts,
        "order": list(language.rule.order()),
        "most": [max(1, int(number)) for number in most],
    }


def _tree(text: str, symbols: Sequence[str]) -> Any:
    """Write a condition, which `Condition.read` has read, as nested lists."""
    places = {f"n{symbol}": place for place, symbol in enumerate(symbols)}

    def tree(node: Any) -> Any:
        if isinstance(node, ast.Name):
            return ["n", places[node.id]]
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.UnaryOp):
            inner = tree(node.operand)
            return inner if isinstance(node.op, ast.UAdd) else [_OPERATIONS[type(node.op)], inner]
        if isinstance(node, ast.BinOp):
            return [_OPERATIONS[type(node.op)], tree(node.left), tree(node.right)]
        if isinstance(node, ast.BoolOp):
            return [_OPERATIONS[type(node.op)], *map(tree, node.values)]
        if isinstance(node, ast.Call):
            assert isinstance(node.func, ast.Name)
            return [node.func.id, *map(tree, node.args)]
        parts = [tree(part) for part in (node.left, *node.comparators)]
        pairs = zip(node.ops, parts, parts[1:], strict=False)
        return ["and", *([_OPERATIONS[type(kind)], one, other] for kind, one, other in pairs)]

    return tree(ast.parse(text.strip(), mode="eval").body)


def _split(split: Split) -> dict[str, Any]:
    language, counts = split.language, split.counts
    ties = language.ties(counts)
    return {
        "counts": _packed(counts.numpy()),
        "answers": _packed(language.answer(counts).numpy()),
        "ties": None if ties is None else _packed(ties.numpy().astype(int)),
    }


def _known(analysis: "HeadAnalysis") -> dict[str, Any]:
    """What an analysis knows that is not computed in the browser: ranks, pairs, Shapley values."""
    known: dict[str, Any] = {
        "answer": analysis.answer,
        "rocAuc": _packed(analysis.table["roc_auc"].to_numpy()),
        "pairs": _packed(np.nan_to_num(analysis.pairs["s_acc"], nan=-1.0)),
        "shapley": {},
        "interactions": {},
    }
    if analysis.known_groups is not None and len(analysis.heads) > 1:
        for metric in (name for name in _MEASURED if name in analysis.pairs):
            found = analysis.interactions(metric)
            known["shapley"][metric] = _packed(np.diag(found))
            known["interactions"][metric] = _packed(found)
    return known


def _packed(values: Array) -> dict[str, str]:
    """Pack numbers: real ones as float64, counts in as few bytes as they take."""
    if values.dtype.kind == "f":
        kind, array = _TYPES["f"], values.astype("<f8")
    else:
        largest = int(values.max(initial=0))
        size = 1 if largest < 2**8 else 2 if largest < 2**16 else 4
        kind, array = _TYPES[size], values.astype(f"<u{size}")
    return {"type": kind, "data": base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()}
