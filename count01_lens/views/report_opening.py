"""The opening of a report: the answer, and how well the whole model does.

Next to the accuracy on the test split stands what the model does on every sentence up to a size,
where that can be told from its tables: 100 % of some sentences is not the last word.
"""

from collections.abc import Sequence

from markupsafe import Markup

from count01_lens.common.text import percent
from count01_lens.common.types import HookedTransformer
from count01_lens.counts.verification import Verification, verify
from count01_lens.heads.analysis import HeadAnalysis
from count01_lens.tasks.counting_task import CountingTask
from count01_lens.tasks.prompts import Task
from count01_lens.views.pieces import paragraph, tiles
from count01_lens.views.wording import Words

MOST_SENTENCES = 10_000_000  # run for a report, in about a second


def opening(
    analysis: HeadAnalysis, words: Words, model: HookedTransformer | None, task: Task | None
) -> Markup:
    """The answer in words, accuracies on test prompts, and errors on all sentences."""
    n_test = len(analysis.data.test_labels)
    names = {"answer": "right answers"}
    whole = f"The whole model on the {n_test:,} test prompts, where it chooses among "
    whole += f"{len(words.answers)} answers ({_few(words.answers)}):"
    if words.is_count01:
        whole = f"The whole model on the {n_test:,} sentences of the test split:"
        names |= {
            "ties": "on ties (as many 1s as 0s)",
            "others": "on all others",
            "end": "'[EOS]' after the answer",
        }
    else:
        names |= {name: f"on {name}" for name in analysis.data.answer.subsets}
        if isinstance(task, CountingTask):
            names["end"] = "'[EOS]' after the answer"
    values = [(names.get(key, key), percent(value, 2)) for key, value in analysis.accuracy.items()]
    return Markup("\n").join(
        [
            paragraph(analysis.answer, "lead"),
            paragraph(whole),
            tiles(values),
            *_verified(verification_of(analysis, model, task)),
            *(paragraph(f"Note: {note}.", "note") for note in analysis.notes),
        ]
    )


def verification_of(
    analysis: HeadAnalysis, model: HookedTransformer | None, task: Task | None
) -> Verification | None:
    """Run a model on all sentences of its task up to a size, if it can be run on counts."""
    if model is None or analysis.counts is None or not isinstance(task, CountingTask):
        return None
    # Of many symbols there are many sentences of even a few each.
    most = round(MOST_SENTENCES ** (1 / len(task.language.symbols)))
    return verify(model, min(task.up_to, most), task=task)


def _verified(found: Verification | None) -> list[Markup]:
    """How many sentences are answered wrongly, ties apart."""
    if found is None:
        return []
    n_others = found.n_sentences - found.n_ties
    n_other_errors = found.n_errors - found.n_tie_errors
    values = [(f"of {found.n_sentences:,} sentences", f"{found.n_errors:,} wrong")]
    if found.n_ties and found.n_errors:
        values += [
            (f"of {found.n_ties:,} ties", f"{found.n_tie_errors:,} wrong"),
            (f"of {n_others:,} others", f"{n_other_errors:,} wrong"),
        ]
    values.append(("without '[EOS]' after the answer", f"{found.n_eos_errors:,}"))
    text = f"Every sentence with up to {found.up_to} of each token (cl.verify):"
    return [paragraph(text), tiles(values), *_details(found)]


def _details(found: Verification) -> list[Markup]:
    """The smallest sentences that are answered wrongly, and what may hang on rounding."""
    texts = []
    if found.n_errors:
        wrong = found.counterexamples[:3]
        right = found.language.answer(wrong).tolist()
        symbols = [f"n{symbol}" for symbol in found.language.symbols]
        shown = [
            ", ".join(f"{name} = {count}" for name, count in zip(symbols, counts, strict=True))
            + f" (right: '{found.language.answers[answer]}')"
            for counts, answer in zip(wrong.tolist(), right, strict=True)
        ]
        texts.append(f"The smallest wrong answers: {'; '.join(shown)}.")
    if found.n_below_rounding:
        n = found.n_below_rounding
        texts.append(f"{n:,} close {'calls' if n > 1 else 'call'} may depend on rounding.")
    return [paragraph(" ".join(texts), "small")] if texts else []


def _few(names: Sequence[str]) -> str:
    """List names, of many only the first and the last."""
    shown = names if len(names) <= 8 else [*names[:4], "…", *names[-3:]]
    return ", ".join(shown)
