"""`comparison.report(path)`: the heads of several models side by side, as one HTML file.

The report follows from the comparison alone: the same comparison gives the same bytes.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Float
from markupsafe import Markup

from count01_lens.common.student import mean_interval
from count01_lens.common.text import number, percent, plural, written_signed
from count01_lens.common.types import Array
from count01_lens.common.versions import library_versions
from count01_lens.heads.comparison import Comparison, written
from count01_lens.heads.labels import LABELS
from count01_lens.heads.metrics import CATEGORIES, METRICS
from count01_lens.heads.thresholds import THRESHOLDS
from count01_lens.views.comparison_plots import (
    MOST_MAPS,
    plot_compared_curves,
    plot_compared_interactions,
    plot_compared_means,
)
from count01_lens.views.document import element, write_page
from count01_lens.views.figure_style import own_style
from count01_lens.views.pieces import facts, figures, paragraph, table, tiles
from count01_lens.views.report_figures import csv_link, drawn_with_data
from count01_lens.views.report_page import Part, report_page

_WORDS = (
    f"Heads cooperate if the 95 % interval of the mean interaction over models is at or above "
    f"+{THRESHOLDS.mean:g}, are redundant if it is at or below −{THRESHOLDS.mean:g}, and do "
    "neither if it is between the two; else it is undecided. The interval is Student's t over "
    "models: if these are seeds of one recipe, it says what other seeds would give in the mean."
)


def write_comparison(comparison: Comparison, path: Path) -> Path:
    """Write the report; `Comparison.report` describes it."""

    @own_style()
    def make() -> str:
        parts = [
            _together_part(comparison),
            _models_part(comparison),
            _maps_part(comparison),
            _curves_part(comparison),
            _making_part(),
        ]
        title = f"Heads of {plural(len(comparison.table), 'model')} side by side"
        return report_page(
            title, _opening(comparison), [part for part in parts if part is not None]
        )

    return write_page(path, make)


def _opening(comparison: Comparison) -> Markup:
    shown = {"accuracy": "right answers", "end_accuracy": "'[EOS]' after the answer"}
    means = {
        name: mean_interval(comparison.table[column])
        for column, name in shown.items()
        if column in comparison.table
    }
    return Markup("\n").join(
        [
            paragraph(comparison.answer, "lead"),
            paragraph("The whole models on their test prompts, in the mean:"),
            tiles((name, percent(found.mean, 2)) for name, found in means.items()),
            *(paragraph(f"Note: {note}.", "note") for note in comparison.notes),
        ]
    )


def _together_part(comparison: Comparison) -> Part:
    rows = []
    for metric in comparison.metrics:
        interval = element("span", written(comparison.interaction(metric)), class_="whole")
        cells = [METRICS[metric].label, interval]
        cells.append(comparison.words[metric])
        for name in ("cooperating_pairs", "redundant_pairs"):
            cells.append(percent(mean_interval(comparison.table[f"{metric}_{name}"]).mean, 0))
        for name in ("heads_for_99", *LABELS[:3]):
            cells.append(number(round(mean_interval(comparison.table[f"{metric}_{name}"]).mean, 1)))
        rows.append(cells)
    columns = ["metric", "mean interaction [95 %]", "heads", "cooperating pairs", "redundant pairs"]
    columns += ["heads for 99 %", *LABELS[:3]]
    worst = ", ".join(
        f"{METRICS[metric].label} {written_signed(comparison.interaction(metric).mean)}"
        for metric in comparison.metrics
    )
    drawn = drawn_with_data(
        plot_compared_means(comparison),
        "means.csv",
        comparison.means,
        f"Mean interaction over pairs by metric: {worst}.",
        "A small point is a model, a large one the mean over models with its 95 % interval. In the "
        "grey band heads neither cooperate nor repeat each other.",
    )
    return Part(
        "together",
        "Over all models",
        [
            paragraph(_WORDS),
            drawn,
            table(columns, rows, "Means over models; – where not all groups were measured"),
        ],
    )


def _models_part(comparison: Comparison) -> Part:
    found = comparison.table
    accuracies = [name for name in found if str(name).endswith("accuracy")]
    columns = ["model", "heads", *(str(name).replace("_", " ") for name in accuracies), *CATEGORIES]
    columns += [f"{METRICS[metric].label} interaction" for metric in comparison.metrics]
    columns += [f"{METRICS[metric].label} heads for 99 %" for metric in _with_all(comparison)]
    rows = [
        [
            element("span", str(row["model"]), class_="whole"),
            str(row["heads"]),
            *(percent(row[name], 2) for name in accuracies),
            *(str(row[kind]) for kind in CATEGORIES),
            *(written_signed(row[f"{metric}_mean_interaction"]) for metric in comparison.metrics),
            *(number(row[f"{metric}_heads_for_99"]) for metric in _with_all(comparison)),
        ]
        for row in found.to_dict("records")
    ]
    text = "Successful heads have an s-acc of at least 0.98 alone, failed ones of at most 0.60."
    first = ("model", "accuracy", *(name for name in columns if name.endswith("interaction")))
    later = [name for name in columns if name not in first]
    content = [paragraph(text), table(columns, rows, "Every model", later=later)]
    return Part("models", "Model by model", [*content, csv_link("models.csv", found)])


def _maps_part(comparison: Comparison) -> Part | None:
    metrics = _with_all(comparison)
    if not metrics:
        return None
    drawn = []
    for metric in metrics:
        found = comparison.interactions(metric)
        label = METRICS[metric].label
        drawn.append(
            drawn_with_data(
                plot_compared_interactions(comparison, metric),
                f"interactions_{metric}.csv",
                _pairs_table(found),
                f"Heat maps of the interactions of all pairs by {label}, one for each of "
                f"{plural(min(len(found), MOST_MAPS), 'model')}.",
                f"{label}: blue pairs cooperate, red ones repeat each other; one scale for all.",
            )
        )
    text = (
        "Heads are in the order of what they are worth, largest first: head 3 of one seed has "
        "nothing to do with head 3 of another."
    )
    return Part("pairs", "Pairs of heads, side by side", [paragraph(text), figures(drawn)])


def _curves_part(comparison: Comparison) -> Part:
    drawn = drawn_with_data(
        plot_compared_curves(comparison),
        "curves.csv",
        comparison.curves,
        "Mean value of groups against their size, a line for each model, by each metric.",
        "The mean over all groups of a size; points alone where only the smallest and the largest "
        "groups were measured. A curve that is steep at first and flat later is redundancy, one "
        "that is flat at first and steep later cooperation.",
    )
    return Part("sizes", "How many heads it takes", [drawn])


def _making_part() -> Part:
    return Part(
        "making",
        "How this was made",
        [
            paragraph("The report was made by cl.compare_heads({...}).report(path), with:"),
            facts(library_versions(), "Versions"),
        ],
    )


def _with_all(comparison: Comparison) -> list[str]:
    """Metrics of which all groups are known, of some model with pairs."""
    return [
        metric
        for metric in comparison.metrics
        if any(len(matrix) > 1 for matrix in comparison.interactions(metric).values())
    ]


def _pairs_table(found: Mapping[str, Float[Array, "head head"]]) -> pd.DataFrame:
    """A row per model and pair of heads."""
    tables = []
    for name, matrix in found.items():
        first, second = np.triu_indices(len(matrix), 1)
        columns = {"model": name, "first": first, "second": second}
        tables.append(pd.DataFrame({**columns, "interaction": matrix[first, second]}))
    return pd.concat(tables, ignore_index=True)
