"""An analysis of heads as a bundle: numbers as tensors, words as JSON.

Reading is strict, because a file may come from anybody: every part must have the kind and the size
that the others call for.
"""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from reprlib import repr as shortened
from typing import Any, get_args

import numpy as np
import pandas as pd
import torch

from count01_lens.common.bundle import Bundle, bundle_bytes, read_bundle
from count01_lens.common.storage import DamagedFileError, write_atomically
from count01_lens.common.types import Array
from count01_lens.common.validation import check_choice, check_int
from count01_lens.common.versions import library_versions
from count01_lens.heads.analysis import HeadAnalysis
from count01_lens.heads.ends import Ends
from count01_lens.heads.games import shapley_interactions
from count01_lens.heads.groups import AllGroups
from count01_lens.heads.head_data import AskedHeads, HeadData
from count01_lens.heads.independence import IndependentHeads
from count01_lens.heads.made_from import MadeFrom, Seen
from count01_lens.heads.metrics import CATEGORIES, METRICS, metrics_of
from count01_lens.heads.probe_fits import LostProbe, ManyFits
from count01_lens.heads.replacements import Mode
from count01_lens.heads.sampling import Estimate
from count01_lens.heads.verdict import judged_metrics

KIND = "analysis"
# Kind and axes of arrays: f for numbers, i for whole ones, b for yes or no.
_DATA = {
    "train_outputs": "f train head d_head",
    "train_answers": "i train",
    "test_outputs": "f test head d_head",
}
_ASKED = {"heads": "f {0} head {0}_choice", "rest": "f {0} {0}_choice", "answers": "i {0}"}
_INDEPENDENT = ("beyond", "low", "high")
_SAMPLED = {"values": "f head", "standard_errors": "f head"}
_FITS = {"starts": "f head row feature", "objectives": "f head", "gradient_norms": "f head"}
_FITS |= {"n_iter": "i head", "classes": "b class"}  # of several choices their numbers


def write_analysis(analysis: HeadAnalysis, path: Path) -> None:
    """Write or replace a file as a whole."""
    write_atomically(path, analysis_bytes(analysis))


def analysis_bytes(analysis: HeadAnalysis) -> bytes:
    """Return the bytes of the file: numbers as tensors and words as JSON."""
    data, seen, arrays = analysis.data, analysis.made_from.seen, dict[str, Any]()
    text: dict[str, Any] = {
        "accuracy": list(analysis.accuracy),
        "notes": list(analysis.notes),
        "questions": {name: sorted(asked.subsets) for name, asked in data.asked.items()},
        "additive": data.group_logits is None,
        "ablation": data.ablation,
        "sampled": {name: found.n_samples for name, found in analysis.sampled.items()},
        "ends": {name: found.gain for name, found in analysis.ends.items()},
        "independent": {
            name: {part: getattr(found, part) for part in _INDEPENDENT}
            for name, found in analysis.independent.items()
        },
        "probe": None if data.probe is None else repr(data.probe),
        "eps": data.eps,
        "made_from": {"model": analysis.made_from.model, "task": analysis.made_from.task},
        "seen": {
            "by_counts": analysis.made_from.seen.by_counts,
            "eps": analysis.made_from.seen.eps,
        },
        "versions": library_versions(),
    }
    for part, table in (("heads", analysis.heads), ("counts", analysis.counts)):
        if table is not None:
            columns = [str(name) for name in table]
            numeric = [name for name in columns if pd.api.types.is_numeric_dtype(table[name])]
            words = {name: table[name].tolist() for name in columns if name not in numeric}
            text[part] = {"columns": columns, "words": words}
            arrays |= _under(part, {name: table[name] for name in numeric})
    arrays |= _under("pairs", analysis.pairs)
    arrays |= _under("data", {name: getattr(data, name) for name in _DATA})
    for name, asked in data.asked.items():
        arrays |= _under(f"asked.{name}", {part: getattr(asked, part) for part in _ASKED})
        arrays |= _under(f"subsets.{name}", asked.subsets)
        if asked.instead is not None:
            arrays[f"asked.{name}.instead"] = asked.instead
    for name, found in analysis.sampled.items():
        arrays |= _under(f"sampled.{name}", {part: getattr(found, part) for part in _SAMPLED})
    arrays |= _under("ends", {name: found.by_prompt for name, found in analysis.ends.items()})
    by_size = {name: found.by_size for name, found in analysis.independent.items()}
    arrays |= _under("independent", by_size)
    arrays |= _under("seen", seen.values)
    if isinstance(analysis.fits, ManyFits):
        arrays |= _under("fits", {name: getattr(analysis.fits, name) for name in _FITS})
    arrays["accuracy"] = list(analysis.accuracy.values())
    arrays["worst_gradient"] = analysis.worst_gradient
    if analysis.known_groups is not None:
        groups = analysis.known_groups
        arrays |= _under("groups", {str(name): groups.table[name] for name in groups.table})
        arrays |= _under("no_heads", groups.empty)
        arrays |= _under("contributions", groups.contributions)
    tensors = {name: torch.from_numpy(np.array(value)) for name, value in arrays.items()}
    return bundle_bytes(Bundle(KIND, text, tensors))


def read_analysis(path: Path) -> HeadAnalysis:
    """Read a file of `write_analysis`; raise if it is missing, changed or not an analysis."""
    bundle = read_bundle(path, KIND)
    try:
        arrays = {name: tensor.numpy() for name, tensor in bundle.tensors.items()}
        return _analysis_of(bundle.about, arrays)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise DamagedFileError(f"{path}: not an analysis of heads ({error!r:.500})") from error


def _analysis_of(text: Mapping[str, Any], arrays: dict[str, Array]) -> HeadAnalysis:
    """Put an analysis together; raise where its parts do not fit each other."""
    data, sizes = _data_of(text, arrays)
    names = [metric.name for metric in metrics_of(data)]
    heads = _table(text["heads"], arrays, "heads")
    counts = _table(text["counts"], arrays, "counts") if "counts" in text else None
    pairs = _read("pairs", dict.fromkeys(names, "f head head"), arrays, sizes)
    if {len(table) for table in (heads, counts) if table is not None} != {data.n_heads}:
        raise ValueError(f"expected a row for each of {data.n_heads} heads")
    numbers = {name: heads[name].to_numpy() for name in (*names, "layer", "head")}
    _sizes(numbers, dict.fromkeys(names, "f head") | {"layer": "i head", "head": "i head"}, sizes)
    if counts is not None:
        # Ratios, of which every counting task has its own, stand before the weights of heads.
        columns = [str(name) for name in counts]
        ratios = columns[: columns.index("head_weight")]
        kinds = dict.fromkeys((*ratios, "head_weight"), "f head")
        _sizes({name: counts[name].to_numpy() for name in kinds}, kinds, sizes)
    if not set(heads["category"]) <= set(CATEGORIES):
        raise ValueError(f"expected categories of {CATEGORIES}")
    _sizes(arrays, {"accuracy": "f split", "worst_gradient": "f"}, {})
    accuracy = dict(zip(_texts(text["accuracy"]), arrays["accuracy"].tolist(), strict=True))
    if accuracy.keys() != data.accuracies().keys():
        raise ValueError(f"expected accuracies of questions, got {shortened(text['accuracy'])}")
    sizes["feature"] = data.n_heads * data.d_head + 1
    fits = None
    if "fits.starts" in arrays:
        several = data.answer.rest.shape[1] > 2
        forms = _FITS | {"classes": "i class" if several else "b class"}
        classes = np.unique(data.train_labels)
        rows = {"class": len(classes), "row": len(classes) if len(classes) > 2 else 1}
        found = _read("fits", forms, arrays, sizes | rows)
        fits = ManyFits(**found)
    worst = float(arrays["worst_gradient"])
    groups = _groups(names, arrays, sizes, worst)
    judged = list(judged_metrics(list(data.asked), heads["layer"].nunique()))
    return HeadAnalysis(
        heads=heads,
        counts=counts,
        pairs=pairs,
        accuracy=accuracy,
        notes=tuple(_texts(text["notes"])),
        data=data,
        fits=fits,
        worst_gradient=worst,
        made_from=_made_from(text, arrays, data),
        ends=_ends(text, arrays, judged, sizes),
        known_groups=groups,
        independent={} if groups is None else _independent(text, arrays, judged, sizes),
        sampled=_sampled(text, arrays, names, sizes),
    )


def _data_of(text: Mapping[str, Any], arrays: dict[str, Array]) -> tuple[HeadData, dict[str, int]]:
    sizes: dict[str, int] = {}
    parts = _read("data", _DATA, arrays, sizes)
    sizes["answer"] = sizes["test"]
    asked = {}
    for name in _texts(list(text["questions"])):
        subsets = dict.fromkeys(_texts(text["questions"][name]), f"b {name}")
        parts_of = _ASKED if text["ablation"] == "zero" else _ASKED | {"instead": _ASKED["heads"]}
        forms = {part: form.format(name) for part, form in parts_of.items()}
        found = _read(f"asked.{name}", forms, arrays, sizes)
        if not 0 <= found["answers"].min() <= found["answers"].max() < found["rest"].shape[1]:
            raise ValueError(f"{name}: expected answers among its choices")
        masks = _read(f"subsets.{name}", subsets, arrays, sizes)
        asked[name] = AskedHeads(**found, subsets=masks)
    if sizes["head"] == 0 or not parts["train_answers"].min() >= 0:
        raise ValueError("expected at least one head, and answers among the choices")
    probe = None if text["probe"] is None else LostProbe(*_texts([text["probe"]]))
    run = None if text["additive"] is True else _cannot_run
    eps = _eps(text["eps"])
    check_choice("ablation", text["ablation"], get_args(Mode))
    data = HeadData(
        **parts,
        asked=asked,
        group_logits=run,
        ablation=text["ablation"],
        probe=probe,
        eps=eps,
    )
    return data, sizes


def _sampled(
    text: Mapping[str, Any], arrays: dict[str, Array], names: list[str], sizes: dict[str, int]
) -> dict[str, Estimate]:
    found = {}
    for name, n in text["sampled"].items():
        if name not in names:
            raise ValueError(f"expected metrics of {names}, got {shortened(name)}")
        parts = _read(f"sampled.{name}", _SAMPLED, arrays, sizes)
        found[name] = Estimate(**parts, n_samples=check_int("n_samples", n, at_least=2))
    return found


def _eps(value: Any) -> float:
    if not 0 < float(value) < 1:
        raise ValueError(f"eps: expected a number between 0 and 1, got {shortened(value)}")
    return float(value)


def _made_from(text: Mapping[str, Any], arrays: dict[str, Array], data: HeadData) -> MadeFrom:
    values = {name: _read("seen", {name: "f prompt _"}, arrays, {})[name] for name in data.asked}
    model, task = _texts([text["made_from"][part] for part in ("model", "task")])
    seen = Seen(values, text["seen"]["by_counts"] is True, _eps(text["seen"]["eps"]))
    return MadeFrom(model, task, seen)


def _ends(
    text: Mapping[str, Any], arrays: dict[str, Array], judged: list[str], sizes: dict[str, int]
) -> dict[str, Ends]:
    """The mean interaction by every metric that is judged; of a single head there is none."""
    if sizes["head"] == 1:
        return {}
    forms = {name: f"f {METRICS[name].question}" for name in judged}
    found = _read("ends", forms, arrays, sizes)
    return {name: Ends(_finite(found[name]), _number(text["ends"][name])) for name in judged}


def _independent(
    text: Mapping[str, Any], arrays: dict[str, Array], judged: list[str], sizes: dict[str, int]
) -> dict[str, IndependentHeads]:
    """How groups do against independent heads, by every metric that is judged, or by none."""
    numbers = text["independent"]
    if not numbers:
        return {}
    forms, size = dict.fromkeys(judged, "f size"), {"size": sizes["head"] + 1}
    by_size = _read("independent", forms, arrays, size)
    return {
        name: IndependentHeads(
            _finite(by_size[name]), *(_number(numbers[name][part]) for part in _INDEPENDENT)
        )
        for name in judged
    }


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"expected a finite number, got {shortened(value)}")
    return float(value)


def _finite(values: Array) -> Array:
    if not np.isfinite(values).all():
        raise ValueError("expected finite numbers, got NaN or infinite ones")
    return values


def _groups(
    names: list[str], arrays: dict[str, Array], sizes: dict[str, int], worst: float
) -> AllGroups | None:
    if "groups.mask" not in arrays:
        return None
    n_heads = sizes["head"]
    kinds = {"mask": "i group", "size": "i group", **dict.fromkeys(names, "f group")}
    table = _read("groups", kinds, arrays, {"group": 2**n_heads - 1})
    empty = _read("no_heads", dict.fromkeys(names, "f"), arrays, {})
    values = {name: float(value) for name, value in empty.items()}
    by_prompt = {
        name: f"f {METRICS[name].question} pair" for name in names if METRICS[name].right_by
    }
    pairs = {"pair": n_heads * (n_heads + 1) // 2}
    contributions = _read("contributions", by_prompt, arrays, sizes | pairs)
    found = AllGroups(pd.DataFrame(table), values, worst, contributions)
    masks = np.arange(1, 2**n_heads)
    if (table["mask"] != masks).any() or (table["size"] != np.bitwise_count(masks)).any():
        raise ValueError("groups: expected every mask once, in order, with its number of heads")
    for name in names:
        matrix = shapley_interactions(found.values(name))[np.triu_indices(n_heads)]
        # What prompts contribute has to be of these groups: words follow from both.
        if name in contributions and not np.allclose(contributions[name].mean(axis=0), matrix):
            raise ValueError(f"contributions of {name}: expected those of the groups, got others")
    return found


def _under(part: str, arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{part}.{name}": array for name, array in arrays.items()}


def _table(text: Mapping[str, Any], arrays: dict[str, Array], part: str) -> pd.DataFrame:
    words = text["words"]
    columns: dict[str, Any] = {}
    for name in _texts(text["columns"]):
        columns[name] = _texts(words[name]) if name in words else arrays[f"{part}.{name}"]
    return pd.DataFrame(columns)


def _texts(values: Any) -> list[str]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise TypeError(f"expected a list of texts, got {shortened(values)}")
    return values


def _read(
    part: str, forms: Mapping[str, str], arrays: dict[str, Array], sizes: dict[str, int]
) -> dict[str, Array]:
    """Take the arrays of a part, checked against sizes that are known, and note new ones."""
    found = {name: arrays[f"{part}.{name}"] for name in forms}
    _sizes(found, forms, sizes)
    return found


def _sizes(arrays: Mapping[str, Array], forms: Mapping[str, str], sizes: dict[str, int]) -> None:
    """Check kinds and axes of arrays, such as "f head token"; note the sizes of new axes."""
    for name, form in forms.items():
        kind, *axes = form.split()
        array = arrays[name]
        found = [sizes.setdefault(axis, size) for axis, size in zip(axes, array.shape, strict=True)]
        if array.dtype.kind != kind or found != list(array.shape):
            raise ValueError(f"{name}: expected {form}, got {array.dtype} {array.shape}")


def _cannot_run(masks: Array, told: object) -> Iterator[tuple[str, Array, Array]]:
    raise ValueError("a loaded analysis has no model to run; analyze the model again for groups")
