"""The engine in JavaScript against the library's own forms, in node and in Chromium."""

import itertools
import math
import re

import numpy as np
import pytest
import torch

import count01_lens as cl
from count01_lens.attention.ablation import Ablate
from count01_lens.attention.patches import Ratios, Weights
from count01_lens.counts.choice_readout import choice_readout
from count01_lens.counts.closed_form import CountForm
from count01_lens.counts.multiplicities import Multiplicities
from count01_lens.counts.readout import CountReadout, readout
from count01_lens.heads.head_data import collect
from count01_lens.heads.metrics import Groups
from count01_lens.heads.runners import CountRunner
from count01_lens.tasks.counting_task import CountingTask
from count01_lens.views.explorer_data import Explored, _tree, explorer_data
from count01_lens.views.explorer_module import ENGINE, PAGE, explorer_file, explorer_module, joined
from tests.browsers import needs_chromium
from tests.views.explorer.engines import in_chromium, in_node
from tests.views.explorer.small_models import SMALL, TASKS, model_for


def patches_for(task, rng):
    """Interventions of the library, and the same as the engine takes them."""
    symbols = task.language.symbols
    ratio = lambda: float(rng.choice([0.5, 1.0, 3.0, 1e-4, math.inf]))  # noqa: E731
    some = [1, 3]
    first = {symbol: ratio() for symbol in symbols[1:]}
    alone = {symbols[1]: 0.0, symbols[2]: 2.0}
    weights = {"[BOS]": 0.5, symbols[0]: 1.0, symbols[2]: 3.0}
    for ratios, heads, others in (
        (first, None, "zero"), (first, some, "keep"), (alone, some, "zero"), (alone, None, "keep"),
        ({symbols[1]: 1.0}, some, "zero"), ({symbols[2]: math.inf}, None, "keep"),
    ):  # fmt: skip
        yield [Ratios(ratios=ratios, heads=heads, others=others)], []
    yield [Weights(weights, heads=some)], [0]
    yield [Weights(weights, heads=None, others="keep")], []
    yield [Ratios(ratios=first, heads=[2], others="keep", at="answer")], [1]
    yield [Ratios(ratios=first, heads=some), Weights(weights, heads=[3], others="keep")], [2]
    yield [], [0, 1, 2, 3]
    yield [], []


def as_given(patch):
    written = {"heads": None if patch.heads is None else list(patch.heads)}
    written |= {"others": patch.others}
    if isinstance(patch, Weights):
        return written | {"weights": dict(patch.weights), "at": patch.at}
    if patch.at != "=":  # as the explorer leaves it out
        written["at"] = patch.at
    ratios = {symbol: "inf" if r == math.inf else r for symbol, r in patch.ratios.items()}
    return written | {"ratios": ratios}


def cases_for(name, seed, size, **options):
    task, rng = TASKS[name], np.random.default_rng(seed)
    model = model_for(task, seed, size, **options)
    data = explorer_data([Explored(model, task)])
    n = len(task.language.symbols)
    sentences = [[0] * n, [1] + [0] * (n - 1), *rng.integers(0, 40, (4, n)).tolist()]
    given, expected = [], []
    for patches, off in patches_for(task, rng):
        group = None if off else [0, 2]
        form = CountForm.from_models([model], task=task)
        for patch in patches:
            form = patch.on_counts(form)
        form = Ablate(off).on_counts(form) if off else form
        case = {"patches": [as_given(patch) for patch in patches], "off": off}
        given.append({**case, "data": data, "sentences": sentences, "group": group})
        expected.append((form, task, sentences, group))
    return given, expected


def assert_equal(found, form, task, sentences, group, tolerance):
    data = collect(CountRunner(form), task)
    groups = Groups(data, np.eye(data.n_heads, dtype=bool))
    for name, value in data.accuracies().items():
        assert found["whole"][name] == pytest.approx(value, abs=1e-12), name
    flat = groups.fits.starts
    readouts = readouts_of(form, groups.fits)
    for head, got in enumerate(found["heads"]):
        close(got["train"], data.train_outputs[:, head], tolerance)
        close(got["test"], data.test_outputs[:, head], tolerance)
        close(got["written"], data.answer.heads[:, head], tolerance)
        columns = [*range(head * data.d_head, (head + 1) * data.d_head), -1]
        close(np.array(got["probe"]), flat[head][:, columns], max(tolerance, 1e-7))
        assert got["sAcc"] == pytest.approx(groups.probe_accuracy[head], abs=1e-12)
        assert got["lAcc"] == pytest.approx(groups.accuracy["answer"][head], abs=1e-12)
        if tolerance < 1e-8:
            assert got["readout"] == readouts[head]
    if group is not None:
        masks = np.isin(np.arange(data.n_heads), group)[None]
        together = Groups(data, masks)
        assert found["group"]["sAcc"] == pytest.approx(together.probe_accuracy[0], abs=1e-12)
        assert found["group"]["lAcc"] == pytest.approx(together.accuracy["answer"][0], abs=1e-12)
    counts, language = torch.tensor(sentences), form.language
    for at, place in enumerate((language.at_equals, language.at_answer)):
        asked = Multiplicities.of(counts, place, form.scores.dtype)
        attention = form.attention(asked)[0].sum(dim=-2)  # other queries are not asked: zero
        for row, got in enumerate(found["sentences"]):
            assert got["right"] == int(language.answer(counts[row]))
            close(got["places"][at]["attention"], attention[row], tolerance)
            close(got["places"][at]["outputs"], form.head_outputs(asked)[0, row], tolerance)
            close(got["places"][at]["written"], form.head_logits(asked)[0, row], tolerance)
            close(got["places"][at]["logits"], form.logits(asked)[0, row], tolerance)


def readouts_of(form, fits):
    """Probes as inequalities; patched weights stand in the place of e^S, where they do."""
    scores, d, equals = form.scores.clone(), form.values.shape[-1], form.language.equals
    keeps = set()
    for patch in getattr(form, "patches", ()):
        if patch.place.name == "=":
            for row, head in enumerate(patch.heads):
                keeps = keeps | {head} if patch.kept.any() else keeps - {head}
                scores[0, head, equals] = patch.log_weights[row, equals].to(scores)
    patched, written = CountForm(**{**form.tables, "scores": scores}, language=form.language), []
    for head in range(scores.shape[1]):
        rows = fits.starts[head][:, [*range(head * d, (head + 1) * d), -1]]
        if head in keeps:
            written.append("none: '[BOS]' and '=' keep weights that depend on the sentence")
        elif len(rows) == 1:
            written.append(str(readout(patched, head, rows[0, :-1], float(rows[0, -1]))))
        else:
            written.append(str(choice_readout(patched, head, rows[:, :-1], rows[:, -1])))
    return written


def close(found, expected, tolerance):
    expected = np.asarray(expected, dtype=float)
    scale = max(1.0, float(np.abs(expected).max()))
    found = np.asarray(found, dtype=float).reshape(expected.shape)
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * scale)


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize(("seed", "size", "d_head"), [(0, 1.0, 2), (1, 4.0, 1), (2, 12.0, 3)])
def test_node_computes_what_python_does(name, seed, size, d_head, tmp_path):
    given, expected = cases_for(name, seed, size, d_head=d_head)
    for found, (form, *rest) in zip(in_node(given, tmp_path), expected, strict=True):
        assert_equal(found, form, *rest, tolerance=1e-9)


@pytest.mark.slow
@needs_chromium
@pytest.mark.parametrize("name", TASKS)
def test_chromium_computes_what_python_does(name):
    given, expected = cases_for(name, 3, 3.0)
    for found, (form, *rest) in zip(in_chromium(given), expected, strict=True):
        assert_equal(found, form, *rest, tolerance=1e-9)


@pytest.mark.parametrize("name", TASKS)
def test_tables_of_a_head_are_those_of_the_model(name, tmp_path):
    model = model_for(TASKS[name], 4, 1.0)
    form = CountForm.from_models([model], task=TASKS[name])
    data = explorer_data([Explored(model, TASKS[name])])
    (found,) = in_node([{"data": data, "patches": [], "off": [], "sentences": []}], tmp_path)
    for head, got in enumerate(found["heads"]):
        scores = form.scores[0, head, form.language.equals]
        close(got["ratios"], (scores[1] - scores[2 : form.language.equals]).exp(), 1e-9)
        close(got["said"], (form.values[0, head] @ form.logit_weights[0, head])[:-1], 1e-9)


@pytest.mark.parametrize("scale", [1.0, 1e-4])
@pytest.mark.parametrize("make", [cl.minimal_model, cl.cooperative_model, cl.ensemble_model])
def test_handcrafted_models_have_the_readouts_of_their_analysis(make, scale, tmp_path):
    """Weights of exactly zero, and all others small."""
    model = make()
    model.blocks[0].attn.W_O.data *= scale
    case = {"data": explorer_data([Explored(model)]), "patches": [], "off": [], "sentences": []}
    (found,) = in_node([case], tmp_path)
    table = cl.analyze_heads(model).table
    assert [head["learned"] for head in found["heads"]] == table["learned_readout"].tolist()
    assert [head["readout"] for head in found["heads"]] == table["readout"].tolist()


READOUTS = [  # values of '[BOS]', '0', '1', '2' and '=', that are read as they are
    [0, -0.001, 0.001, 0, 0], [0, -1e-9, 2e-9, 0, 1e-12], [0, 0, 0, 0, 0], [0.5, 0, 0, 0, -0.25],
    [0, -0.0626, 1, 0.1874, 0], [0, -0.0004, 1, 0.0016, 0.0026], [3, 0, -7, 0, -3], [0, 4, 0, 0, 0],
    [-1e-300, 1e-300, 0, 0, 0], [1, -2.5, 1e9, 1e-9, 0.1], [-0.3126, 0.4376, -1, 1e-4, 0.3126],
    [0, -1.23e17, 1, 58341.2, -0.5], [-99950, 1, 1, 999.6, 0], [0, 9.996e14, 1, -9.994e14, 1e30],
]  # fmt: skip


@pytest.mark.parametrize("scores", [[0, 0, 0, 0, 0], [1, -2, 0.5, 3, -1], [-800, 0, 0, -5, -800]])
def test_readouts_are_written_as_in_python(scores, tmp_path):
    language = TASKS["count01"].language
    plain = {"symbols": list("012"), "answers": list("45"), "order": list(language.rule.order())}
    given = [{"language": plain, "scores": scores, "values": values} for values in READOUTS]
    expected = [
        str(CountReadout(np.array(scores, dtype=float), np.array(values, dtype=float), language))
        for values in READOUTS
    ]
    assert in_node(given, tmp_path, "written") == expected


def test_a_rule_that_is_a_function_has_answers_but_no_known_ties(tmp_path):
    task = CountingTask("abc", "XYZ", lambda counts: counts.argmax(dim=1), **SMALL)
    model = model_for(task, 8, 2.0)
    data = explorer_data([Explored(model, task)])
    case = {"data": data, "patches": [], "off": [], "sentences": [[3, 1, 2]], "group": [0, 3]}
    (found,) = in_node([case], tmp_path)
    analysis = cl.analyze_heads(model, task)
    assert found["whole"] == pytest.approx(analysis.accuracy, abs=1e-12)
    assert found["whole"].keys() == {"answer", "end"}
    assert [head["lAcc"] for head in found["heads"]] == analysis.table["l_acc"].tolist()
    assert [head["sAcc"] for head in found["heads"]] == analysis.table["s_acc"].tolist()
    groups = analysis.groups().set_index("mask")
    assert found["group"]["lAcc"] == groups.loc[0b1001, "l_acc"]
    assert found["group"]["sAcc"] == groups.loc[0b1001, "s_acc"]
    (sentence,) = found["sentences"]
    asked = np.array(sentence["places"][0]["logits"])[task.language.answer_ids]
    assert sentence["right"] is None
    assert sentence["said"] == asked.argmax()


RULES = [
    "n0 < n1", "n0 <= n1", "n0 > n1", "n0 >= n1", "n0 == n1", "n0 != n1", "n0 < n1 <= n2",
    "max(n0, n2) > n1", "min(n0, n1) > n2", "min(n0, n1, n2) == 1", "not n0 < n1",
    "n0 < 1 or n1 < n2", "n0 > n1 and n1 > n2", "n0 - n1 > -2*n2 + 1", "+n0 + n1 > 2",
]  # fmt: skip


def test_rules_have_the_answers_of_python(tmp_path):
    """Every operation of a rule, on every sentence with up to 3 of each symbol."""
    task = TASKS["count01"]
    data = explorer_data([Explored(model_for(task, 0, 1.0), task)])
    sentences = [list(counts) for counts in itertools.product(range(4), repeat=3)]
    cases = []
    for text in RULES:
        (given,) = data["models"]
        language = given["language"] | {"rule": [_tree(text, "012")]}
        other = data | {"models": [given | {"language": language}]}
        cases.append({"data": other, "patches": [], "off": [], "sentences": sentences})
    for text, found in zip(RULES, in_node(cases, tmp_path), strict=True):
        rule = CountingTask("012", "45", text, **SMALL).language
        expected = rule.answer(torch.tensor(sentences)).tolist()
        by_hand = [
            0 if eval(text, {f"n{i}": n for i, n in enumerate(counts)}) else 1
            for counts in sentences
        ]
        assert [got["right"] for got in found["sentences"]] == expected == by_hand
        assert 0 < sum(expected) < len(sentences)


@pytest.mark.parametrize("size", [40.0, 100.0])
def test_scores_that_would_overflow_or_vanish_do_neither(size, tmp_path):
    given, expected = cases_for("count01", 6, size)
    for found, (form, task, *_) in zip(in_node(given, tmp_path), expected, strict=True):
        data = collect(CountRunner(form), task)
        for head, got in enumerate(found["heads"]):
            close(got["train"], data.train_outputs[:, head], 1e-9)
            close(got["test"], data.test_outputs[:, head], 1e-9)


def test_models_in_float32_agree_as_far_as_their_numbers_go(tmp_path):
    given, expected = cases_for("count01", 5, 1.0, dtype=torch.float32)
    for found, (form, _, sentences, _) in zip(in_node(given, tmp_path), expected, strict=True):
        assert form.scores.dtype == torch.float32
        counts = torch.tensor(sentences)
        asked = Multiplicities.of(counts, form.language.at_equals, torch.float32)
        for row, got in enumerate(found["sentences"]):
            close(got["places"][0]["outputs"], form.head_outputs(asked)[0, row], 1e-6)
            close(got["places"][0]["logits"], form.logits(asked)[0, row], 1e-6)


@pytest.mark.slow
def test_the_bundled_model_has_the_numbers_of_its_analysis(tmp_path):
    model = cl.example_model()
    case = {"data": explorer_data([Explored(model)]), "patches": [], "off": [], "sentences": []}
    (found,) = in_node([case], tmp_path)
    analysis = cl.analyze_heads(model)
    assert [head["sAcc"] for head in found["heads"]] == analysis.table["s_acc"].tolist()
    assert [head["lAcc"] for head in found["heads"]] == analysis.table["l_acc"].tolist()
    assert [head["learned"] for head in found["heads"]] == analysis.table[
        "learned_readout"
    ].tolist()
    assert found["whole"] == pytest.approx(analysis.accuracy)


@pytest.mark.parametrize("patch", [
    {"heads": None, "ratios": {"1": 0, "2": 0}, "others": "zero"},
    {"heads": None, "ratios": {"1": -1}, "others": "zero"},
    {"heads": None, "ratios": {"7": 1}, "others": "zero"},
    {"heads": None, "weights": {"x": 1}, "others": "zero"},
    {"heads": None, "weights": {"0": -1}, "others": "zero"},
])  # fmt: skip
def test_what_cannot_be_is_refused(patch, tmp_path):
    data = explorer_data([Explored(model_for(TASKS["count01"], 0, 1.0), TASKS["count01"])])
    case = {"data": data, "patches": [patch], "off": [], "sentences": []}
    with pytest.raises(AssertionError, match="RangeError"):
        in_node([case], tmp_path)


def test_modules_are_joined_without_clashes():
    names = []
    for name in (*ENGINE, *PAGE):
        text = explorer_file(name)
        names += re.findall(r"^(?:export )?(?:const|let|function|class) (\w+)", text, re.MULTILINE)
        names += [
            part.strip()
            for listed in re.findall(
                r"^(?:export )?const [{\[]([^}\]=]*)[}\]] =", text, re.MULTILINE
            )
            for part in listed.split(",")
        ]
        for imported in re.findall(r'from "\./([\w.]+)"', text):
            order = (*ENGINE, *PAGE)
            assert order.index(imported) < order.index(name), (name, imported)
    assert len(names) == len(set(names)), sorted(n for n in names if names.count(n) > 1)
    assert not re.search(r"^(import|export) ", joined((*ENGINE, *PAGE)), re.MULTILINE)
    assert explorer_module().count("export default") == 1


def test_no_module_writes_markup():
    for name in (*ENGINE, *PAGE):
        text = explorer_file(name)
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert word not in text, (name, word)
        assert "Function(" not in text
