"""Views against the model's own cache; pages that ask for nothing from outside."""

import html
import json
import re
import socket
import urllib.request

import pytest
import torch
from markupsafe import escape

from count01_lens.attention.ablation import ablate_heads
from count01_lens.attention.patches import patch_attention
from count01_lens.heads.runners import HookRunner, head_logits
from count01_lens.models.build import build_model
from count01_lens.models.checkpoints import example_model
from count01_lens.models.config import ModelConfig
from count01_lens.models.handcrafted import cooperative_model, minimal_model
from count01_lens.tasks.language import MalformedSentenceError, Sentence, Token, parse
from count01_lens.tasks.prompts import Prompts
from count01_lens.views.attention_view import compare_attention, page_of, show_attention
from count01_lens.views.attribution_view import show_attribution
from count01_lens.views.circuits_page import Drawing, _bundle, render_script
from tests.lens_versions import KIND, made

SHORT = "0110="
LONG = "0120210012" * 6 + "=5"  # 24 zeros, 18 ones, 18 twos
INF = float("inf")
MODEL = build_model(ModelConfig(), seed=3, dtype=torch.float64)


def deep(normalization="LN", n_key_value_heads=None, attention_dir="causal"):
    model = made(
        d_model=12, d_head=4, n_heads=4, n_layers=2, n_ctx=64, d_vocab=8, d_mlp=20,
        act_fn="gelu", normalization_type=normalization, seed=1, device="cpu", dtype=torch.float64,
        n_key_value_heads=n_key_value_heads, attention_dir=attention_dir,
    )  # fmt: skip
    generator = torch.Generator().manual_seed(2)
    for parameter in model.parameters():
        parameter.data += 0.3 * torch.randn(
            parameter.shape, generator=generator, dtype=torch.float64
        )
    return model


def ids(sentence):
    return torch.tensor([[int(token) for token in parse(sentence).tokens]])


def drawn(page):
    """Read the drawings back from a page: the component and what it is given."""
    calls = re.findall(r'CircuitsVis\.render\("(.+?)", CircuitsVis\.(\w+), (.+)\);\n', page)
    return [(name, component, json.loads(props)) for name, component, props in calls]


# What is shown


@pytest.mark.parametrize("sentence", [SHORT, "0110=4", "[BOS]2=5[EOS]", "=", parse("01=")])
def test_a_short_sentence_is_shown_token_by_token(sentence):
    view = show_attention(MODEL, sentence)
    parsed = sentence if isinstance(sentence, Sentence) else parse(sentence)
    assert view.tokens == [token.text for token in parsed.tokens]
    _, cache = MODEL.run_with_cache(torch.tensor([[int(t) for t in parsed.tokens]]))
    torch.testing.assert_close(view.attention, cache["pattern", 0][0].detach())
    assert not view.attention.requires_grad
    [(_, component, props)] = drawn(view.page)
    assert component == "AttentionHeads"
    assert props["tokens"] == view.tokens
    assert props["attentionHeadNames"] == view.heads == [f"head {h}" for h in range(16)]
    assert props["maskUpperTri"] is True
    shown = torch.tensor(props["attention"], dtype=torch.float64)
    torch.testing.assert_close(shown, view.attention, rtol=1e-3, atol=1e-12)
    assert props["maxValue"] == view.attention[:, view.tokens.index("=") :].max()


@pytest.mark.parametrize("model", [MODEL, deep()], ids=["one layer", "two layers"])
def test_a_long_sentence_is_shown_by_type(model):
    view = show_attention(model, LONG, heads=[1, 3])
    assert view.tokens == ["[BOS]", "0 ×24", "1 ×18", "2 ×18", "=", "5"]
    tokens = ids(LONG)[0].tolist()
    _, cache = model.run_with_cache(ids(LONG))
    types = [0, 1, 2, 3, 4, 6]
    for place, head in enumerate([1, 3]):
        pattern = cache["pattern", 0][0, head]
        for row, query_type in enumerate(types):
            for column, key_type in enumerate(types):
                sums = [
                    sum(float(pattern[q, k]) for k, key in enumerate(tokens) if key == key_type)
                    for q, query in enumerate(tokens)
                    if query == query_type
                ]
                expected = sum(sums) / len(sums)
                assert float(view.attention[place, row, column]) == pytest.approx(expected)
    torch.testing.assert_close(view.attention.sum(dim=-1), torch.ones(2, 6).double())
    assert drawn(view.page)[0][2]["maskUpperTri"] is False
    assert "63 tokens, so they are drawn by type" in view.page


def test_where_long_begins():
    assert len(show_attention(MODEL, "0" * 38 + "=").tokens) == 40
    assert show_attention(MODEL, "0" * 39 + "=").tokens == ["[BOS]", "0 ×39", "="]


def test_layers_positions_and_names():
    model = deep()
    view = show_attention(model, SHORT, heads=[(1, 3), 0])
    assert view.heads == ["layer 0 head 0", "layer 1 head 3"]
    _, cache = model.run_with_cache(ids(SHORT))
    torch.testing.assert_close(view.attention[0], cache["pattern", 0][0, 0].detach())
    torch.testing.assert_close(view.attention[1], cache["pattern", 1][0, 3].detach())
    assert len(show_attention(model, SHORT).heads) == 8


def test_attention_in_both_directions_is_not_masked():
    view = show_attention(deep(attention_dir="bidirectional"), SHORT)
    assert view.attention[:, 0, 1:].all()
    assert drawn(view.page)[0][2]["maskUpperTri"] is False


def test_hooks_take_part():
    uniform = 1 / torch.arange(1.0, 7).double()[:, None] * torch.ones(6, 6).double().tril()
    hook = ("blocks.0.attn.hook_pattern", lambda pattern, hook: uniform.expand_as(pattern))
    with MODEL.hooks(fwd_hooks=[hook]):
        view = show_attention(MODEL, SHORT)
    torch.testing.assert_close(view.attention, uniform.expand(16, 6, 6))
    assert not torch.allclose(show_attention(MODEL, SHORT).attention, view.attention)


def test_the_model_is_left_as_it_was():
    model = deep()
    model.add_hook("blocks.0.attn.hook_z", lambda z, hook: None)

    def state():
        hooks = {name: len(module._forward_hooks) for name, module in model.named_modules()}
        return hooks, [p.requires_grad for p in model.parameters()], model(ids(SHORT)).tolist()

    before = state()
    show_attention(model, SHORT)
    show_attribution(model, "0110=5")
    compare_attention(model, SHORT, w01=1.0, w02=2.0, heads=[0])
    with pytest.raises(ValueError, match="w01"):
        compare_attention(model, SHORT, w01=-1.0, w02=1.0)
    assert state() == before


# Direct logit attribution


@pytest.mark.parametrize("output", ["fused", "residual"])
@pytest.mark.parametrize("sentence", ["0112=4", LONG])
def test_attributions_add_up_to_those_of_the_heads(output, sentence):
    model = build_model(ModelConfig(output=output), seed=1, dtype=torch.float64)
    view = show_attribution(model, sentence)
    counts = [parse(sentence).counts]
    at_equals, at_answer = (head_logits(model, counts, at)[0] for at in ("=", "answer"))
    difference = at_equals[:, Token.FOUR] - at_equals[:, Token.FIVE]
    torch.testing.assert_close(view.attributions["="].sum(dim=0), difference)
    torch.testing.assert_close(view.attributions["answer"].sum(dim=0), at_answer[:, Token.EOS])
    assert view.attributions["="].shape == (len(view.tokens), 16)
    assert not view.attributions["="][-1].any(), "'=' does not see the answer"


@pytest.mark.parametrize("normalization", [None, "LN", "LNPre", "RMS"])
@pytest.mark.parametrize("n_key_value_heads", [None, 2])
def test_attributions_of_any_model_add_up(normalization, n_key_value_heads):
    model = deep(normalization, n_key_value_heads)
    sentence = "0112=4"
    prompt = Prompts([ids(sentence)[0]], [6], position=5)
    expected = HookRunner(model).attribute(prompt).heads[0].to(model.W_U)
    view = show_attribution(model, sentence, heads=[2, (1, 1)])
    difference = (expected[:, Token.FOUR] - expected[:, Token.FIVE])[[2, 5]]
    torch.testing.assert_close(view.attributions["="].sum(dim=0), difference)
    assert ("frozen scale" in view.page) == (normalization is not None)


def test_an_attribution_is_attention_times_what_is_read():
    view = show_attribution(MODEL, SHORT)
    with torch.no_grad():
        _, cache = MODEL.run_with_cache(ids(SHORT))
    W_O = MODEL.W_O.detach()
    direction = (MODEL.W_U[:, Token.FOUR] - MODEL.W_U[:, Token.FIVE]).detach()
    for token in range(6):
        for head in range(16):
            value = cache["v", 0][0, token, head] @ W_O[0, head] @ direction
            expected = float(cache["pattern", 0][0, head, 5, token] * value)
            assert float(view.attributions["="][token, head]) == pytest.approx(expected)
    assert list(view.attributions) == ["="]


def test_attributions_as_drawn():
    view = show_attribution(MODEL, "0110=5", heads=[3])
    all_heads = show_attribution(MODEL, "0110=5")
    (_, component, props), (_, _, at_answer) = drawn(view.page)
    assert component == "ColoredTokensMulti"
    assert props["labels"] == ["all heads", "head 3"]
    values = torch.tensor(props["values"], dtype=torch.float64)
    torch.testing.assert_close(values[:, 1], view.attributions["="][:, 0], rtol=1e-3, atol=1e-9)
    together = all_heads.attributions["="].sum(dim=1)
    torch.testing.assert_close(values[:, 0], together, rtol=1e-3, atol=1e-9)
    assert at_answer["values"] != props["values"]
    table = view.sections[0].table
    assert table.columns == ["[BOS]", "0 ×2", "1 ×2", "=", "5", "sum"]
    assert table.rows["head 3"][-1] == pytest.approx(float(view.attributions["="].sum()))
    assert table.rows["all heads"][-1] == pytest.approx(float(together.sum()))
    assert table.rows["head 3"][1] == pytest.approx(float(view.attributions["="][[1, 4]].sum()))


@pytest.mark.parametrize("mode", ["zero", "mean"])
def test_a_replaced_output_comes_from_no_token(mode):
    with ablate_heads(MODEL, [2], mode=mode, data=[[3, 4, 5]]):
        view = show_attribution(MODEL, SHORT)
    whole = show_attribution(MODEL, SHORT)
    assert not view.attributions["="][:, 2].any()
    torch.testing.assert_close(view.attributions["="][:, 3:], whole.attributions["="][:, 3:])
    assert ("comes from no token" in view.page) == (mode == "mean")
    if mode == "mean":
        expected = head_logits(MODEL, [[3, 4, 5]])[0, 2]
        columns, row = view.sections[0].table.columns, view.sections[0].table.rows["head 2"]
        share = float(expected[Token.FOUR] - expected[Token.FIVE])
        assert row[columns.index("no token")] == row[-1] == pytest.approx(share)


def test_attributions_that_are_all_zero_are_drawn():
    model = build_model()
    model.W_U.data.zero_()
    [(_, _, props)] = drawn(show_attribution(model, SHORT).page)
    assert props["positiveBounds"][0] > 0


# Before and after a patch


def test_a_patch_is_shown_beside_the_attention_it_replaces():
    view = compare_attention(MODEL, "0112=", w01=1.0, w02=float("inf"), heads=[3, 5])
    torch.testing.assert_close(
        view.attention, show_attention(MODEL, "0112=", heads=[3, 5]).attention
    )
    with patch_attention(MODEL, w01=1.0, w02=float("inf"), heads=[3, 5]):
        inside = show_attention(MODEL, "0112=", heads=[3, 5])
    torch.testing.assert_close(view.patched, inside.attention)
    third = 1 / 3
    expected = torch.tensor([0, third, third, third, 0, 0]).double()
    torch.testing.assert_close(view.patched[:, 5], expected.expand(2, 6), rtol=1e-6, atol=1e-6)
    before, after = (props for _, _, props in drawn(view.page))
    assert before["maxValue"] == after["maxValue"]
    assert before["attention"] != after["attention"]
    assert "w01 = 1, w02 = ∞; &#39;[BOS]&#39; and &#39;=&#39; get nothing" in view.page


def test_a_patch_of_a_long_sentence_keeps_what_others_have():
    view = compare_attention(MODEL, LONG, w01=2.0, w02=1.0, heads=[0], others="keep")
    row, patched = view.attention[0, 4], view.patched[0, 4]
    torch.testing.assert_close(patched[[0, 4]], row[[0, 4]])
    torch.testing.assert_close(patched.sum(), torch.tensor(1.0).double())
    assert float(patched[1] / 24) == pytest.approx(2 * float(patched[2] / 18))
    assert "keep their weights" in view.page


def test_rows_that_change_are_marked_and_written_out_first():
    view = compare_attention(MODEL, "0112=", w01=1.0, w02=float("inf"), heads=[3, 5])
    rows, maps = view.sections
    assert rows.heading == "▸ The row of =, before and after"
    assert rows.table.columns == ["[BOS]", "0", "1", "1", "2", "=", "sum"]
    for place, head in enumerate((3, 5)):
        for when, attention in (("before", view.attention), ("after", view.patched)):
            written = rows.table.rows[f"head {head}, {when}"]
            assert written[:-1] == pytest.approx(attention[place, -1].tolist())
    for drawing in maps.drawings:
        assert drawing.props["tokens"] == ["[BOS]", "0", "1", "1", "2", "▸ ="]
    # No weight is beyond the colours, but for '[BOS]', which sees nothing but itself.
    top = max(float(each[:, 1:].max()) for each in (view.attention, view.patched))
    assert maps.drawings[0].props["maxValue"] == pytest.approx(top)


EMPTY = "a row sums to one, or is empty where a head looks at nothing."


@pytest.mark.parametrize(
    ("sentence", "ratios", "others", "said"),
    [
        ("0112=", (1.0, INF), "zero", "A row sums to one."),
        ("=", (1.0, INF), "zero", EMPTY.capitalize()),
        ("2=", (1.0, INF), "zero", EMPTY.capitalize()),
        ("2=5", (1.0, INF), "keep", ""),  # what '[BOS]' and '=' keep is a part of one
        ("2" * 50 + "=", (1.0, 1.0), "zero", "a column the sum, and a row sums to one."),
        ("2" * 50 + "=", (1.0, INF), "zero", f"a column the sum, and {EMPTY}"),
        ("2" * 50 + "=", (1.0, INF), "keep", "a column the sum."),
    ],
)
def test_what_a_row_sums_to_is_said_where_it_is_true(sentence, ratios, others, said):
    view = compare_attention(MODEL, sentence, w01=ratios[0], w02=ratios[1], others=others)
    text = view.sections[-1].text[0]
    assert text.endswith(said or "keep their weights.")
    assert ("one" in text) == ("one" in said)
    with patch_attention(MODEL, w01=ratios[0], w02=ratios[1], others=others):
        text = show_attention(MODEL, sentence).sections[0].text[0]
    assert text.endswith(said or "a key position (source).")


# Pages


def test_nothing_is_loaded_from_outside(monkeypatch, tmp_path):
    def refuse(*arguments, **options):
        raise AssertionError("something was asked for from outside")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(urllib.request, "urlopen", refuse)
    view = show_attribution(MODEL, "0110=5")
    page = view.save(tmp_path / "view.html").read_text("utf-8")
    assert page == view.page
    shown = html.unescape(re.search(r'srcdoc="(.*?)"', view._repr_html_(), re.S)[1])
    before_scripts = page.index("<script>")
    assert shown[:before_scripts] == page[:before_scripts]
    ours = page.replace(_bundle(), "")
    assert len(ours) < 30_000
    for loading in ("http:", "https:", "//", "src=", "href=", "url(", "import"):
        assert loading not in ours.replace("!important", ""), loading
    for loading in ('src="http', 'from "http', "unpkg", "sourceMappingURL", "</script", "<!--"):
        assert loading not in _bundle(), loading
    assert "content=\"default-src 'none'; script-src 'unsafe-inline'; " in page
    assert page.index("Content-Security-Policy") < page.index("<script>")


def test_the_bundle_is_in_a_page_once():
    views = [
        show_attention(MODEL, SHORT),
        show_attribution(MODEL, "0110=5"),
        compare_attention(MODEL, SHORT, w01=1.0, w02=1.0),
    ]
    page = page_of("all of it", views)
    assert page.count(_bundle()) == page.count("var CircuitsVis=") == 1
    assert page.count("</script>") == 2
    names = [name for name, _, _ in drawn(page)]
    assert names == [f"view-{number}" for number in range(5)]
    assert all(page.count(f'id="{name}"') == 1 for name in names)
    assert [component for _, component, _ in drawn(page)] == [
        "AttentionHeads", "ColoredTokensMulti", "ColoredTokensMulti", "AttentionHeads",
        "AttentionHeads",
    ]  # fmt: skip
    assert page.startswith('<!doctype html>\n<html lang="en">')
    assert "<title>all of it</title>" in page
    assert "<h2>0110=: Attention</h2>" in page
    assert "<h2>Attention</h2>" in views[0].page


def test_the_same_call_gives_the_same_bytes():
    for show in (show_attention, show_attribution):
        assert show(MODEL, SHORT)._repr_html_() == show(MODEL, SHORT)._repr_html_()


def test_text_stays_text():
    evil = "</title></script><img src=x onerror='alert(1)'>&"
    page = page_of(evil, [show_attention(MODEL, SHORT)])
    assert "<img" not in page.replace(_bundle(), "")
    assert page.count(str(escape(evil))) == 2
    props = {"tokens": ["</script><!--", "\u2028", '"']}
    code = render_script({"view-0": Drawing("ColoredTokens", props)})
    written = code.partition("CircuitsVis.ColoredTokens, ")[2].partition(");\n")[0]
    assert "<" not in written
    assert "\u2028" not in written
    assert json.loads(written) == props


def test_in_a_notebook_and_in_a_terminal():
    view = show_attention(MODEL, SHORT)
    assert repr(view) == "AttentionView('0110=': 16 heads, 6 tokens); call .save(path)"
    assert repr(show_attention(MODEL, LONG, heads=[0])) == (
        "AttentionView('0 ×24 1 ×18 2 ×18 = 5': 1 head, 6 tokens); call .save(path)"
    )
    frame = view._repr_html_()
    assert re.fullmatch(
        r'<iframe data-count01 srcdoc="[^"<>]*" title="[^"]*" style="[^"]*"></iframe>', frame
    )


@pytest.mark.parametrize("make", [minimal_model, cooperative_model])
def test_handcrafted_models_with_huge_scores(make):
    for sentence in ("=", SHORT, LONG):
        view = show_attribution(make(), sentence)
        assert "nan" not in view.page.replace(_bundle(), "").lower()


def test_the_model_that_ships_with_the_package():
    view = show_attention(example_model(), SHORT)
    assert "writes &#39;5&#39; after &#39;=&#39; (right: &#39;5&#39;)" in view.page


# Mistakes


@pytest.mark.parametrize("show", [show_attention, show_attribution, compare_attention])
@pytest.mark.parametrize(
    ("sentence", "heads", "error", "message"),
    [
        ("0110", None, MalformedSentenceError, "position 4: expected .*got the end"),
        ("0 1=", None, MalformedSentenceError, "position 1"),
        (["0", "1"], None, TypeError, "expected a sentence as a str"),
        ("0" * 63 + "=", None, ValueError, "has 65 tokens, the model reads 64"),
        (SHORT, [8], ValueError, "there is no head 8"),
        (SHORT, [], ValueError, "at least one head"),
        (SHORT, 3, TypeError, "heads: expected several"),
    ],
)
def test_mistakes_are_found_before_the_model_runs(show, sentence, heads, error, message):
    model = deep()

    def fail(*arguments):
        raise AssertionError("the model was run")

    model.register_forward_pre_hook(fail)
    with pytest.raises(error, match=message):
        show(model, sentence, heads=heads)


def test_a_bad_ratio_is_found_before_the_model_runs():
    model = build_model()

    def fail(*arguments):
        raise AssertionError("the model was run")

    model.register_forward_pre_hook(fail)
    with pytest.raises(ValueError, match="w02"):
        compare_attention(model, SHORT, w01=1.0, w02=float("nan"))


def test_models_that_cannot_be_shown():
    with pytest.raises(TypeError, match=f"model: expected a {KIND}, got Linear"):
        show_attention(torch.nn.Linear(1, 1), SHORT)
    other = made(d_model=4, d_head=2, n_layers=1, n_ctx=9, d_vocab=9, act_fn="relu")
    for show in (show_attention, show_attribution):
        with pytest.raises(
            ValueError, match=r"such as \[0, 3, 1\], because the model has no token"
        ):
            show(other, SHORT)
        with pytest.raises(ValueError, match="expected the 8 tokens of Count01"):
            show(other, parse(SHORT))
    with pytest.raises(ValueError, match="expected the 8 tokens of Count01"):
        compare_attention(other, SHORT)
    model = build_model()
    model.W_E.data[3, 3] = torch.nan
    with pytest.raises(ValueError, match="expected finite weights"):
        show_attention(model, SHORT)
