"""`analysis.report(path)`: all that an analysis found, as one HTML file for people to read.

The report follows from the analysis alone: the same analysis gives the same bytes. What does not
apply to a model is left out, and the report says why.
"""

from os import PathLike
from pathlib import Path
from typing import Any

from count01_lens.common.text import anything
from count01_lens.common.types import HookedTransformer
from count01_lens.common.versions import library_versions
from count01_lens.heads.analysis import HeadAnalysis
from count01_lens.heads.mechanisms import mechanisms
from count01_lens.models.checkpoints import checkpoint_info, load_checkpoint
from count01_lens.models.stored import hooked
from count01_lens.tasks.count01 import Count01
from count01_lens.tasks.prompts import Task
from count01_lens.views.attention_view import show_attention
from count01_lens.views.attribution_view import show_attribution
from count01_lens.views.document import element, in_notebook, write_page
from count01_lens.views.explorer_page import explorer_part
from count01_lens.views.figure_style import own_style
from count01_lens.views.pieces import facts, paragraph, table, unfolding
from count01_lens.views.plots import strongest
from count01_lens.views.prompt_view import LONGEST
from count01_lens.views.report_figures import MOST_TILES, groups_part, pairs_part
from count01_lens.views.report_heads import effects_part, heads_part
from count01_lens.views.report_looks import looks_part
from count01_lens.views.report_mechanisms import mechanisms_part
from count01_lens.views.report_opening import opening
from count01_lens.views.report_page import Part, report_page
from count01_lens.views.report_verdict import verdict_part
from count01_lens.views.wording import Words, of_count01, output_texts, title_of

SENTENCE = "0110212=4"
_FEW = 16  # test prompts, among which a short one is shown


def write_report(
    analysis: HeadAnalysis, path: Path, *, checkpoint: str | PathLike[str] | None = None
) -> Path:
    """Write the report of an analysis; `HeadAnalysis.report` describes it."""

    @own_style()
    def make() -> str:
        info, task = None, analysis.task
        model = None if analysis.model is None else hooked(analysis.model)
        if checkpoint is not None:
            info, saved = checkpoint_info(checkpoint), load_checkpoint(checkpoint)
            analysis.made_from.check_weights(saved, f"checkpoint {checkpoint}")
            model = saved if model is None else model
        if task is None and of_count01(analysis):
            task = Count01()
        if model is not None and task is not None:
            analysis.check_made_from(model, task)
        words = Words.of(analysis, model)
        found = mechanisms(analysis, model)
        parts = [
            verdict_part(analysis, words),
            heads_part(analysis, words),
            mechanisms_part(analysis, words, model, found),
            effects_part(analysis, words),
            pairs_part(analysis, words),
            groups_part(analysis, words),
            looks_part(analysis, words, model, task, found),
            explorer_part(analysis, model, task),
            _example_part(analysis, words, model, task),
            _making_part(analysis, words, model, info),
        ]
        shown = [part for part in parts if part is not None]
        return report_page(title_of(analysis, words), opening(analysis, words, model, task), shown)

    return write_page(path, make)


def analysis_html(analysis: HeadAnalysis) -> str:
    """Write the table of an analysis for a notebook; of many heads those of best s-acc."""
    heads = strongest(analysis)
    shown = analysis.table.loc[heads]
    rows = [[anything(cell) for cell in row] for row in shown.to_numpy().tolist()]
    few = (
        []
        if len(heads) == len(analysis.table)
        else [
            element(
                "p",
                f"The {len(heads)} heads of best s-acc, of {len(analysis.table)}; "
                "analysis.table has all.",
            )
        ]
    )
    return in_notebook(
        element("p", element("b", analysis.answer)),
        *few,
        table(list(map(str, shown)), rows, "Metrics of each head alone"),
        *(element("p", element("i", note)) for note in analysis.notes),
    )


def _making_part(
    analysis: HeadAnalysis,
    words: Words,
    model: HookedTransformer | None,
    info: dict[str, Any] | None,
) -> Part:
    """What the numbers were made of and with; `info` is what the checkpoint tells."""
    content = []
    if info is not None:
        known = dict(info.get("info") or {"seed and recipe": "the checkpoint has none"})
        recipe = known.pop("recipe", None)
        content += [paragraph("The checkpoint says of itself:"), facts(known, "Checkpoint")]
        if isinstance(recipe, dict):
            content.append(unfolding("The recipe it was trained by", facts(recipe, "Recipe")))
        versions = info.get("versions", {})
        content.append(unfolding("What it was saved with", facts(versions, "Saved with")))
    if model is not None:
        names = ["n_layers", "n_heads", "d_head", "d_model", "n_ctx", "normalization_type"]
        if not words.is_count01:
            names += ["d_vocab", "d_vocab_out", "attn_only", "act_fn", "positional_embedding_type"]
        shape = {name: getattr(model.cfg, name) for name in names}
        content.append(unfolding("The HookedTransformer", facts(shape, "Model")))
    probes = (
        "Linear probes are SVMs, solved to convergence: the largest relative gradient at the end "
        f"of any fit is {analysis.worst_gradient:.1e}."
        if analysis.data.probe is None
        else f"The probe is {analysis.data.probe!r}."
    )
    content += [paragraph(probes), paragraph("This report was made with:")]
    content.append(facts(library_versions(), "Versions"))
    return Part("making", "How this was made", content)


def sentence_part(model: HookedTransformer) -> Part:
    """Attention and direct logit attribution on one sentence; for other reports, too."""
    views = [show_attention(model, SENTENCE), show_attribution(model, SENTENCE)]
    text = (
        "Choose a head with the mouse or with Tab and Enter. Other sentences: "
        "cl.show_attention(model, ...), or count01-lens view."
    )
    return Part(
        "sentence",
        f"One sentence, head by head: {SENTENCE}",
        [paragraph(text, "small")],
        sections=[section for view in views for section in view.sections],
    )


def _example_part(
    analysis: HeadAnalysis, words: Words, model: HookedTransformer | None, task: Task | None
) -> Part | None:
    """One test prompt, head by head; a loaded analysis has none to show."""
    if model is None or task is None:
        return None
    if words.is_count01:
        return sentence_part(model)
    question = task.questions["answer"]
    prompts = question.test.few(_FEW)
    lengths = [len(row) for row in prompts.sequences()]
    number = next((n for n, length in enumerate(lengths) if length <= LONGEST), 0)
    tokens, position = prompts.sequences()[number].tolist(), prompts.positions[number]
    answer, heads = int(prompts.answers[number]), strongest(analysis)
    if len(heads) < len(analysis.heads):
        heads = strongest(analysis, MOST_TILES)
    shown: dict[str, Any] = {"heads": heads, "position": position}
    views = [
        show_attention(model, tokens, **shown),
        show_attribution(model, tokens, answer=answer, choices=question.choices, **shown),
    ]
    text = (
        f"A test prompt; the right answer is {output_texts(model, [answer])[0]}. Choose a head "
        "with the mouse or with Tab and Enter. Other prompts: cl.show_attention(model, ...)."
    )
    if len(heads) < len(analysis.heads):
        text += f" Shown are the {len(heads)} heads of best s-acc."
    return Part(
        "prompt",
        f"One prompt, head by head: {views[0].title}",
        [paragraph(text, "small")],
        sections=[section for view in views for section in view.sections],
    )
