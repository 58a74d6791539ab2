"""Attention and attribution of prompts that are no sentences of Count01, for any model."""

import json
import re

import numpy as np
import pytest
import torch

from count01_lens.attention.ablation import ablate_heads
from count01_lens.models.build import build_model
from count01_lens.tasks.language import parse
from count01_lens.views.attention_view import show_attention
from count01_lens.views.attribution_view import show_attribution
from count01_lens.views.circuits_page import _bundle
from tests.views.other_tasks import EVIL_TOKEN, Words, model_of

PROMPT = [0, 3, 1, 3, 7, 8]
MODEL = model_of()


def drawn(page):
    """Read the drawings back from a page: the component and what it is given."""
    calls = re.findall(r'CircuitsVis\.render\("(.+?)", CircuitsVis\.(\w+), (.+)\);\n', page)
    return [(component, json.loads(props)) for _, component, props in calls]


class TextWords(Words):
    """The same, that also reads: texts are separated by spaces."""

    def __call__(self, text, **options):
        texts = [text] if isinstance(text, str) else text
        ids = [[self.vocab[word] for word in each.split(" ")] for each in texts]
        return {"input_ids": torch.tensor(ids)}


# Attention


@pytest.mark.parametrize(
    "prompt",
    [PROMPT, tuple(PROMPT), torch.tensor(PROMPT), torch.tensor([PROMPT]), np.array(PROMPT)],
    ids=["list", "tuple", "tensor", "batch of one", "array"],
)
def test_token_ids_are_shown_as_the_model_sees_them(prompt):
    view = show_attention(MODEL, prompt)
    _, cache = MODEL.run_with_cache(torch.tensor([PROMPT]))
    expected = torch.cat([cache["pattern", 0][0], cache["pattern", 1][0]]).detach()
    torch.testing.assert_close(view.attention, expected)
    assert view.tokens == ["0", "3", "1", "3", "7", "8"]
    assert view.title == "0 3 1 3 7 8"
    assert view.heads[0] == "layer 0 head 0"
    assert view.heads[-1] == "layer 1 head 3"
    [(component, props)] = drawn(view.page)
    assert component == "AttentionHeads"
    assert props["maxValue"] == pytest.approx(float(expected[:, 1:].max()))
    for word in ("'='", "'4'", "entence"):
        assert word not in view.page.replace(_bundle(), "")


def test_what_the_model_finds_most_likely_is_said():
    shares = MODEL(torch.tensor([PROMPT]))[0].detach().softmax(dim=-1)
    text = " ".join(show_attention(MODEL, PROMPT).sections[0].text)
    best = int(shares[-1].argmax())
    assert f"gives most to {best} ({100 * float(shares[-1, best]):.1f}" in text
    assert "at position 5." in text
    text = " ".join(show_attention(MODEL, PROMPT, position=2).sections[0].text)
    assert f"gives most to {int(shares[2].argmax())} (" in text
    assert "at position 2." in text


def test_one_layer_of_several():
    view = show_attention(MODEL, PROMPT, layer=1)
    assert view.heads == [f"layer 1 head {head}" for head in range(4)]
    whole = show_attention(MODEL, PROMPT)
    torch.testing.assert_close(view.attention, whole.attention[4:])
    some = show_attention(MODEL, PROMPT, layer=1, heads=[2, 0])
    assert some.heads == ["layer 1 head 0", "layer 1 head 2"]
    assert show_attribution(MODEL, PROMPT, layer=1, heads=[2]).heads == ["layer 1 head 2"]


def test_many_heads_have_a_drawing_for_each_layer():
    model = model_of(n_layers=3, n_heads=6, d_model=12, d_head=2, attn_only=True)
    view = show_attention(model, PROMPT)
    assert [section.heading for section in view.sections] == [
        f"Attention, layer {layer}" for layer in range(3)
    ]
    found = [torch.tensor(props["attention"]).double() for _, props in drawn(view.page)]
    torch.testing.assert_close(torch.cat(found), view.attention, rtol=1e-3, atol=1e-4)
    names = [name for _, props in drawn(view.page) for name in props["attentionHeadNames"]]
    assert names == view.heads


def test_a_tokenizer_reads_and_writes_texts():
    model = model_of()
    model.tokenizer = TextWords(["<s>", EVIL_TOKEN, "b", "c", "d", "e", "f", "g", "?"])
    model.cfg.tokenizer_prepends_bos = False
    model.cfg.default_prepend_bos = False
    view = show_attention(model, f"{EVIL_TOKEN} c b ?")
    assert view.tokens[1:] == ["c", "b", "?"]
    _, cache = model.run_with_cache(torch.tensor([[1, 3, 2, 8]]))
    torch.testing.assert_close(view.attention[:4], cache["pattern", 0][0].detach())
    page = view.page.replace(_bundle(), "")
    assert "<script>alert" not in page
    assert view.title.endswith("cb?")
    heading = show_attribution(model, [1, 3, 2, 8], answer=2, choices=[2, 3]).sections[0].heading
    assert heading.endswith("logit of 'b' minus that of 'c'")


def test_long_prompts_are_drawn_by_type_if_types_are_few():
    model = model_of(n_ctx=300, d_vocab=300)
    tokens = [1, 2] * 30 + [8]
    view = show_attention(model, tokens)
    assert view.tokens == ["1 ×30", "2 ×30", "8"]
    _, cache = model.run_with_cache(torch.tensor([tokens]))
    pattern = cache["pattern", 0][0, 1].detach()
    from_last = [float(pattern[-1, [i for i in range(61) if tokens[i] == t]].sum()) for t in (1, 2)]
    torch.testing.assert_close(view.attention[1, 2, :2], torch.tensor(from_last).double())
    many = show_attention(model, list(range(100)))
    assert many.attention.shape[-1] == 100
    assert len(many.title) == 60
    assert show_attribution(model, list(range(100))).sections[0].table is None
    with pytest.raises(ValueError, match="has 300 tokens, of 300 types: expected at most 256"):
        show_attention(model, list(range(300)))


def test_both_directions_and_other_outputs():
    view = show_attention(model_of(attention_dir="bidirectional"), PROMPT)
    assert drawn(view.page)[0][1]["maskUpperTri"] is False
    assert drawn(view.page)[0][1]["maxValue"] == pytest.approx(float(view.attention.max()))
    other = model_of(d_vocab_out=3)
    other.tokenizer = Words(list("abcdefghi"))
    assert "logit of 2 minus the mean" in show_attribution(other, PROMPT, answer=2).page
    assert show_attention(other, [4]).attention.shape == (8, 1, 1)


def test_ids_of_count01_are_tokens_and_its_texts_sentences():
    model = build_model()
    ids = [int(token) for token in parse("0110=").tokens]
    as_ids, as_text = show_attention(model, ids), show_attention(model, "0110=")
    torch.testing.assert_close(as_ids.attention, as_text.attention)
    assert as_ids.tokens == as_text.tokens == ["[BOS]", "0", "1", "1", "0", "="]
    assert "after '='" in as_text.sections[0].text[1]
    assert "after '='" not in as_ids.sections[0].text[1]
    chosen = show_attribution(model, "0110=", choices=[5, 6], answer=5)
    whole = show_attribution(model, "0110=")
    torch.testing.assert_close(chosen.attributions["asked"], whole.attributions["="])


# Direct logit attribution


@pytest.mark.parametrize("norm", [None, "LN", "RMS"])
@pytest.mark.parametrize("choices", [None, [1, 2, 3], [4, 7]])
def test_attributions_add_up_to_the_logits_of_heads(norm, choices):
    model = model_of(normalization_type=norm)
    view = show_attribution(
        model, PROMPT, answer=None if choices is None else choices[0], choices=choices
    )
    logits, cache = model.run_with_cache(torch.tensor([PROMPT]))
    among = list(range(9)) if choices is None else choices
    answer = int(logits[0, -1].argmax()) if choices is None else choices[0]
    others = [choice for choice in among if choice != answer]
    # TransformerLens's own road, which also freezes the scale of the last norm.
    per_head = cache.stack_head_results(layer=-1, pos_slice=-1, apply_ln=norm is not None)[:, 0]
    if norm is not None:
        per_head = per_head * model.ln_final.w
    written = per_head @ model.W_U
    expected = written[:, answer] - written[:, others].mean(dim=1)
    torch.testing.assert_close(view.attributions["asked"].sum(dim=0), expected.detach())
    assert f"logit of {answer} minus " in view.sections[0].heading
    two = "that of 7" if choices == [4, 7] else f"the mean of {len(others)} others"
    assert view.sections[0].heading.endswith(two)


def test_hooks_take_part():
    with ablate_heads(MODEL, [(1, 2)]):
        view = show_attribution(MODEL, PROMPT, answer=1)
    assert not view.attributions["asked"][:, 6].any()
    assert show_attribution(MODEL, PROMPT, answer=1).attributions["asked"][:, 6].any()


# Mistakes


@pytest.mark.parametrize("show", [show_attention, show_attribution])
@pytest.mark.parametrize(
    ("prompt", "options", "error", "message"),
    [
        ("0 1 2", {}, ValueError, "because the model has no tokenizer, got '0 1 2'"),
        ([], {}, ValueError, "prompt: expected at least one token"),
        ([0, 9], {}, ValueError, "prompt: expected token ids of the model, 0 to 8, got 9"),
        ([0, -1], {}, ValueError, "prompt: expected token ids of at least 0, got -1"),
        ([0, 1.5], {}, TypeError, "prompt: expected a sentence as a str, or token ids in a row"),
        ([0, True], {}, TypeError, "prompt: expected a sentence as a str, or token ids"),
        ([[0, 1], [1, 2]], {}, TypeError, "or token ids in a row"),
        (torch.zeros(3), {}, TypeError, "or token ids in a row"),
        (7, {}, TypeError, "or token ids in a row"),
        (None, {}, TypeError, "or token ids in a row"),
        ([1] * 13, {}, ValueError, "has 13 tokens, the model reads 12"),
        (PROMPT, {"layer": 2}, ValueError, "layer: expected 0 to 1, got 2"),
        (PROMPT, {"layer": "x"}, ValueError, "layer: expected 0 to 1, got 'x'"),
        (PROMPT, {"layer": 1, "heads": [4]}, ValueError, "numbers 0 to 3 of heads in layer 1"),
        (PROMPT, {"layer": 1, "heads": [(0, 1)]}, ValueError, "numbers 0 to 3 of heads in layer"),
        (PROMPT, {"heads": [8]}, ValueError, "there is no head 8"),
        (PROMPT, {"position": 6}, ValueError, "position: expected one of the 6 tokens"),
        (PROMPT, {"position": 0.5}, ValueError, "position: expected one of the 6 tokens"),
    ],
)
def test_mistakes_are_found_before_the_model_runs(show, prompt, options, error, message):
    model = model_of()

    def fail(*arguments):
        raise AssertionError("the model was run")

    model.register_forward_pre_hook(fail)
    with pytest.raises(error, match=message):
        show(model, prompt, **options)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"answer": 9}, ValueError, "answer: expected token ids of the model, 0 to 8, got 9"),
        ({"answer": -1}, TypeError, "answer: expected token ids"),
        ({"answer": "a"}, TypeError, "answer: expected token ids, got"),
        ({"choices": [1, 99]}, ValueError, "choices: expected token ids of the model"),
        ({"choices": [1]}, ValueError, "choices: expected at least two different tokens"),
        ({"choices": [1, 1]}, ValueError, "choices: expected at least two different tokens"),
        ({"choices": [1, 2], "answer": 3}, ValueError, r"answer: expected one of the choices"),
    ],
)
def test_answers_that_cannot_be_attributed(options, error, message):
    with pytest.raises(error, match=message):
        show_attribution(MODEL, PROMPT, **options)
