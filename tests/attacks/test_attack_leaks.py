"""Nothing is left of calls that fail: a hundred of them here, a thousand by `make stress`."""

import gc
import weakref

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from traitlets import TraitError

import count01_lens as cl
from count01_lens.models.lens import is_own_hook
from count01_lens.views.figures import as_bytes
from count01_lens.views.plots import draw_all
from tests.attacks import attack_and_keep, leaks
from tests.attacks.leaks import (
    CLEAN,
    SENTENCE,
    TINY,
    TOKENS,
    WAYS,
    attack_failing_calls,
    attack_interrupts,
    attack_memory,
    attack_patcher,
    models,
    outcome_of,
    process_of_its_own,
    run_until,
    state_of,
)
from tests.lens_versions import KIND, has_bridges


def assert_clean(outcomes, cases):
    bad = {outcome: n for outcome, n in outcomes.items() if not outcome.endswith(CLEAN)}
    assert not bad
    assert sum(outcomes.values()) == cases


@pytest.mark.slow
@pytest.mark.parametrize("name", WAYS)
def test_every_way_to_fail_fails_and_leaves_nothing(name):
    rng = np.random.default_rng(1)
    for model in models():
        for _ in range(3):
            outcome = outcome_of(lambda model=model: WAYS[name](rng, model), model, name)
            assert outcome.endswith(CLEAN), outcome


@pytest.mark.slow
def test_failing_calls_leave_nothing():
    assert_clean(attack_failing_calls(100, seed=0), 100)


@pytest.mark.slow
def test_an_interrupt_at_any_line_leaves_nothing():
    outcomes = attack_interrupts(40, seed=0)
    assert outcomes == {f"Pressed, {CLEAN}": 40}


@pytest.mark.slow
def test_the_patcher_stays_at_what_it_shows():
    assert_clean(attack_patcher(30, seed=0), 30)


@pytest.mark.stress
@pytest.mark.parametrize(
    ("attack", "what", "cases"),
    [
        (
            attack_failing_calls,
            "Calls inside and of interventions that fail in random ways: hooks, flags, parameters, "
            "random states, logits and everything global are as before",
            1000,
        ),
        (
            attack_interrupts,
            "Ctrl-C at a random line of the library while an intervention is put in place or at work",
            1000,
        ),
        (attack_patcher, "Input that the explorer cannot use: it stays as it was", 500),
    ],
)
def test_all_failing_calls(attack, what, cases):
    name = attack.__name__.replace("attack_", "leaks-").replace("_", "-")
    assert_clean(attack_and_keep(name, what, attack, cases, seed=1), cases)


@pytest.mark.slow
def test_memory_stays_flat():
    assert attack_memory(60, seed=0) == {"flat": 60}


@pytest.mark.slow
def test_failing_calls_leave_nothing_in_a_plain_process():
    """Without the checks of shapes that the tests add, and with Python's random state compared."""
    assert_clean(process_of_its_own("small", 60, 30)["failed"], 30)


@pytest.mark.stress
def test_memory_stays_flat_on_the_example():
    outcomes = attack_and_keep(
        "leaks-memory",
        "Calls of analyze_heads on the 16-head model in one process, its memory measured",
        lambda cases, seed: attack_memory(cases, seed, "example"),
        1000,
        seed=0,
    )
    assert outcomes == {"flat": 1000}


def test_the_state_that_is_compared_notices_changes():
    """Each part of it, changed by hand and put back."""
    model = models()[0]
    before = state_of(model)

    def changed():
        return {part for part, value in state_of(model).items() if value != before[part]}

    assert changed() == set()
    handle = model.embed.register_forward_pre_hook(lambda module, inputs: None)
    assert changed() == {"hooks"}
    handle.remove()
    model.add_hook("hook_embed", lambda value, hook: None)
    assert changed() == {"hooks", "TransformerLens hooks"}
    model.reset_hooks()
    model.hook_dict["hook_embed"].ctx["noted"] = 1
    assert changed() == {"hook contexts"}
    model.hook_dict["hook_embed"].ctx.clear()
    with model.hooks():
        assert changed() == {"flags"}
    model.W_E.requires_grad_(False)
    assert changed() == {"parameters"}
    model.W_E.requires_grad_(True)
    with torch.no_grad():
        assert changed() == {"torch's modes"}
    with torch.random.fork_rng():
        torch.rand(1)
        assert changed() == {"torch's random state"}
    figure = plt.figure()
    assert changed() == {"matplotlib"}
    plt.close(figure)
    assert changed() == set()


def test_figures_leave_nothing_with_pyplot():
    model = cl.cooperative_model()
    analysis = cl.analyze_heads(model, TINY).with_groups()
    assert plt.get_fignums() == []
    drawn = []
    for kind in ("png", "svg"):
        figures = draw_all(model, analysis)
        drawn += [weakref.ref(figure) for figure in figures.values()]
        for name in ("pairs_s_acc", "attention_ratios", "shapley"):
            assert len(as_bytes(figures[name], kind)) > 1000
        assert plt.get_fignums() == []
    del figures
    gc.collect()
    assert len(drawn) > 20
    assert [figure() for figure in drawn] == [None] * len(drawn)


def test_hooks_of_a_generator_in_a_cycle_of_references_go_with_it():
    """Torch's handles do not know their hooks any more when such a cycle is collected."""
    model = models()[0]
    for intervention in (
        lambda: cl.ablate_heads(model, [0]),
        lambda: cl.patch_attention(model, w01=1.0),
        lambda: cl.set_attention(model, {"0": 1}),
        lambda: cl.copy_attention(model, SENTENCE),
    ):

        def work(intervention=intervention):
            with intervention():
                yield model(TOKENS)

        steps = work()
        next(steps)
        cycle = [steps]
        cycle.append(cycle)
        before = sum(map(len, _all_hooks(model)))
        del steps, cycle
        gc.collect()
        assert before > sum(map(len, _all_hooks(model))) == 0


def _all_hooks(model):
    return [
        [hook for hook in registry.values() if not is_own_hook(hook)]
        for module in model.modules()
        for registry in (module._forward_hooks, module._forward_pre_hooks)
    ]


def test_ctrl_c_while_hooks_are_put_in_place():
    """At every line: before a hook is there, right after, and between two of them."""
    functions = (
        "patch_attention", "applied", "noticing", "hooks_attached", "torch_hooks", "add_hook"
    )  # fmt: skip
    model = models()[0]
    for choice in range(40):
        chosen = leaks.valid(np.random.default_rng(choice), model)
        if chosen.func.__name__ == "patch_attention":
            break
    run_until(model, choice, None, functions)  # hooks are tried out when a model is new
    lines = run_until(model, choice, None, functions)
    assert lines > 20
    for line in range(1, lines + 1):
        outcome = outcome_of(
            lambda line=line: run_until(model, choice, line, functions) and None, model, str(line)
        )
        assert outcome == f"Pressed, {CLEAN}"


def test_the_explorer_refuses_what_is_neither_zero_nor_keep():
    panel = cl.Explorer(models()[0], TINY)
    with pytest.raises(TraitError, match="others: expected 'zero' or 'keep'"):
        panel.others = "maybe"
    assert panel.others == "zero"


def test_a_run_from_the_middle_does_not_take_the_tokens_of_the_run_before():
    for model in models():
        for intervention in (
            cl.patch_attention(model, w01=1.0, w02=1.0),
            cl.copy_attention(model, SENTENCE),
        ):
            with intervention, torch.no_grad():
                whole = model(TOKENS)
                for _ in range(2):
                    with pytest.raises(ValueError, match="from its tokens on"):
                        model(torch.zeros(1, 6, model.cfg.d_model), start_at_layer=0)
                if not has_bridges():
                    # In two parts, the second one belongs to the tokens of the first.
                    embedded = model(TOKENS, stop_at_layer=0)
                    assert torch.equal(model(embedded, start_at_layer=0), whole)


def test_what_is_no_model_and_what_is_no_sentence_is_said_so():
    with pytest.raises(TypeError, match=f"expected a {KIND}, got str"):
        cl.ablate_heads("model", [0]).__enter__()
    with pytest.raises(TypeError, match="source: expected a sentence such as '0011=', got None"):
        cl.copy_attention(models()[0], None).__enter__()
