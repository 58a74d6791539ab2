"""The structure among heads on games and models whose structure is known, and by brute force."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

import count01_lens as cl
from count01_lens.heads.games import shapley_values
from count01_lens.heads.groups import all_groups
from count01_lens.heads.head_data import AskedHeads
from count01_lens.heads.metrics import Groups
from count01_lens.heads.structure import SHARE, find_structure, losses, takeover
from tests.helpers import TINY
from tests.views import other_tasks


def game(n, value):
    """Values of all groups of n heads, by a function of the set of heads."""
    sets = [{i for i in range(n) if mask >> i & 1} for mask in range(1 << n)]
    return np.array([float(value(heads)) for heads in sets])


def random_game(seed, n=4):
    return np.random.default_rng(seed).standard_normal(1 << n)


def worth_by_orders(values, players):
    """Shapley values of some of the heads, the others gone: means over all orders of arrival."""
    total = dict.fromkeys(players, 0.0)
    orders = list(itertools.permutations(players))
    for order in orders:
        present = 0
        for head in order:
            total[head] += values[present | 1 << head] - values[present]
            present |= 1 << head
    return {head: gains / len(orders) for head, gains in total.items()}


@pytest.mark.parametrize("seed", range(6))
def test_takeover_by_its_definition(seed):
    n = 2 + seed % 4
    values = random_game(seed, n)
    whole = worth_by_orders(values, range(n))
    found = takeover(values)
    for removed in range(n):
        rest = worth_by_orders(values, [head for head in range(n) if head != removed])
        for other, worth in rest.items():
            assert found[removed, other] == pytest.approx(worth - whole[other], abs=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_worth_is_what_is_lost_and_what_is_taken_over(seed):
    values = random_game(seed, 6)
    found = takeover(values)
    np.testing.assert_array_equal(found, found.T)
    np.testing.assert_array_equal(np.diag(found), 0)
    np.testing.assert_allclose(losses(values) + found.sum(axis=1), shapley_values(values))
    whole = len(values) - 1
    assert losses(values).tolist() == [values[whole] - values[whole - (1 << i)] for i in range(6)]


# Heads, value of a group, what head 1 takes over from head 0, what is lost without head 0.
BY_HAND = {
    "copies": (2, lambda s: bool(s), 0.5, 0),
    "only together": (2, lambda s: s == {0, 1}, -0.5, 1),
    "each its own": (3, lambda s: len(s), 0, 1),
    # Two of three copies: the third has a share in it.
    "three copies": (3, lambda s: bool(s), 1 / 6, 0),
    "one of no use": (2, lambda s: 0 in s, 0, 1),
    "one in the way": (2, lambda s: -(0 in s), 0, -1),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_takeover_by_hand(name):
    n, value, taken, lost = BY_HAND[name]
    values = game(n, value)
    assert takeover(values)[0, 1] == pytest.approx(taken)
    assert losses(values)[0] == lost


@pytest.mark.parametrize("seed", range(8))
def test_renaming_heads_renames_the_structure(seed):
    values, order = random_game(seed), np.random.default_rng(seed).permutation(4)
    answers = np.random.default_rng(seed).integers(0, 2, (50, 4))
    answers[:, 2] = answers[:, 0]
    renamed = game(4, lambda s: values[sum(1 << int(order[i]) for i in s)])
    before = find_structure(values, "l_acc", answers=answers)
    after = find_structure(renamed, "l_acc", answers=answers[:, order])
    new_name = np.argsort(order)
    np.testing.assert_allclose(after.takeover, before.takeover[np.ix_(order, order)], atol=1e-12)
    np.testing.assert_allclose(after.loss, before.loss[order])
    assert after.minimal == before.minimal
    for part in ("copies", "alike", "smallest"):
        moved = {tuple(sorted(map(int, new_name[list(c)]))) for c in getattr(before, part)}
        assert moved == set(getattr(after, part)), part


def test_a_head_that_does_nothing_changes_nothing():
    values = random_game(3)
    wider = np.concatenate([values, values])
    found = takeover(wider)
    np.testing.assert_allclose(found[:4, :4], takeover(values), atol=1e-12)
    np.testing.assert_allclose(found[4], 0, atol=1e-12)
    assert losses(wider)[4] == 0


def test_smallest_and_minimal_groups_by_brute_force():
    """Head 0 does it alone; 1 and 2 do it together; 3 is a little better than nothing."""
    values = game(4, lambda s: 1.0 if 0 in s or {1, 2} <= s else 0.1 * (3 in s))
    found = find_structure(values, "l_acc")
    assert found.smallest == ((0,),)
    assert found.minimal == {1: 1, 2: 1}
    for seed in range(10):
        values = random_game(seed)
        values[-1] = values[0] + 1
        enough = [values[mask] >= values[0] + SHARE for mask in range(16)]
        parts = {mask: [p for p in range(mask) if p & mask == p] for mask in range(16)}
        minimal = [m for m in range(16) if enough[m] and not any(enough[p] for p in parts[m])]
        sizes = [mask.bit_count() for mask in minimal]
        found = find_structure(values, "l_acc")
        assert found.minimal == {size: sizes.count(size) for size in sorted(set(sizes))}
        smallest = [m for m in range(16) if enough[m] and m.bit_count() == min(sizes)]
        assert [sum(1 << h for h in group) for group in found.smallest] == smallest


def test_two_heads_that_only_work_together():
    found = cl.analyze_heads(cl.cooperative_model()).structure()
    assert found.metric == "s_acc"
    assert found.copies == found.alike == ()
    assert found.smallest == ((0, 1),)
    assert found.minimal == {2: 1}
    assert found.takeover[0, 1] == pytest.approx(-0.26, abs=0.01)
    assert "The whole model needs each of its " in str(found)
    assert "Heads that need each other most are 0 and 1 (0.260): " in str(found)
    assert "taken over" not in str(found)


@pytest.mark.parametrize("metric", ["s_acc", "l_acc"])
def test_an_ensemble_is_copies_of_one_head(metric):
    found = cl.analyze_heads(cl.ensemble_model(3)).structure(metric)
    assert found.alike == ((0, 1, 2),)
    if metric == "s_acc":  # by l-acc the ensemble needs all of its votes
        assert found.copies == ((0, 1, 2),)
        assert found.minimal == {1: 3}
        np.testing.assert_allclose(found.loss, 0)
        assert (
            "Heads 0, 1 and 2 are copies: to any group, one of them is worth nearly as much as all"
            in str(found)
        )
        assert "Heads 0, 1 and 2 each reach 99 % of what all heads gain together." in str(found)
        assert "the others take over 100 % of what they are worth." in str(found)
        assert "The whole model does as well if any single head is removed." in str(found)


def test_one_head_has_no_structure():
    found = cl.analyze_heads(cl.minimal_model(), TINY).structure()
    assert found.copies == found.alike == ()
    assert found.takeover.tolist() == [[0]]
    assert found.smallest == ((0,),)
    assert str(found) == (
        "1 head, judged by s-acc:\n- There is only one head, and no structure to find."
    )
    assert found.table["substitute"].tolist() == [""]


def with_heads(data, heads):
    """The data of a model that has these heads of another, some of them more than once."""
    asked = {
        name: AskedHeads(
            heads=each.heads[:, heads], rest=each.rest, answers=each.answers, subsets=each.subsets
        )
        for name, each in data.asked.items()
    }
    return replace(
        data,
        train_outputs=data.train_outputs[:, heads],
        test_outputs=data.test_outputs[:, heads],
        asked=asked,
    )


def test_duplicates_planted_among_trained_heads_are_found():
    """Head 2 of the bundled model is mixed, 1 and 10 fail, 3 is successful."""
    heads = [1, 2, 3, 2, 10, 2]
    data = with_heads(cl.analyze_heads(cl.example_model()).data, heads)
    singles = Groups(data, np.eye(len(heads), dtype=bool))
    flat = data.test_outputs.reshape(len(data.test_outputs), -1)
    values = all_groups(data).values("s_acc")
    found = find_structure(values, "s_acc", answers=singles.fits.predict(flat))
    assert found.copies == ((1, 3, 5),)
    assert found.alike == ((1, 3, 5),)
    places = [found.order.index(head) for head in (1, 3, 5)]
    assert max(places) - min(places) == 2
    np.testing.assert_allclose(found.takeover[1, 3], found.takeover[3, 5], atol=2e-3)


def test_the_table_adds_up():
    found = find_structure(random_game(5), "s_acc", ["a", "b", "c", "d"])
    table = found.table
    np.testing.assert_allclose(table["shapley"], shapley_values(random_game(5)))
    np.testing.assert_allclose(table["shapley"], table["loss"] + table["taken_over"])
    for number, row in enumerate(table.itertuples()):
        most = found.takeover[number].max()
        assert row.by_substitute == most
        if most > 0:
            assert found.takeover[number, list("abcd").index(row.substitute)] == most
    matrix = found.takeover_table()
    assert matrix["removed"].tolist() == list("abcd")
    np.testing.assert_array_equal(matrix[list("abcd")], found.takeover)
    np.testing.assert_array_equal(matrix["lost"], found.loss)


def test_the_structure_in_words():
    """Heads a and b are copies, which c needs; d is in the way."""
    values = game(4, lambda s: 0.5 + 0.4 * bool(s & {0, 1} and 2 in s) - 0.05 * (3 in s))
    answers = np.array([[0, 0, 0, 1], [1, 1, 1, 0]] * 20)
    answers[:10, 3] = 0
    assert str(find_structure(values, "l_acc", "abcd", answers)) == (
        "4 heads, judged by l-acc:\n"
        "- Heads a and b are copies: to any group, one of them is worth nearly as much as both.\n"
        "- The linear probes of heads a, b and c give nearly the same answers.\n"
        "- The smallest groups that reach 99 % of what all heads gain together are 2 groups of "
        "2 heads: heads a and c; heads b and c.\n"
        "- The best substitutes for each other are heads a and b (0.133): without one, the other "
        "is worth that much more. Heads that need each other most are a and c (0.067); b and c "
        "(0.067): without one, the other is worth that much less.\n"
        "- The whole model needs 1 of its 4 heads: l-acc falls most without head c, by 0.400; "
        "l-acc rises most without head d, by 0.050."
    )
    assert "linear probes" not in str(find_structure(values, "l_acc"))


def test_words_for_games_without_structure():
    nothing = str(find_structure(np.full(8, 0.5), "s_acc", answers=np.zeros((5, 3), dtype=int)))
    assert "No two heads are copies" in nothing
    assert "No two heads have linear probes that give nearly the same answers." in nothing
    assert "All heads together do no better than none." in nothing
    assert "When a head is removed, no other takes over anything from it." in nothing
    two_kinds = game(4, lambda s: 0.5 + 0.3 * bool(s & {0, 1}) + 0.2 * bool(s & {2, 3}))
    answers = np.random.default_rng(0).integers(0, 2, (200, 2))[:, [0, 0, 1, 1]]
    found = str(find_structure(two_kinds, "s_acc", answers=answers))
    assert "Copies, of which one is worth nearly as much to any group as all: heads 0 and 1; heads 2 and 3." in found  # fmt: skip
    assert (
        "Heads whose linear probes give nearly the same answers: heads 0 and 1; heads 2 and 3."
        in found
    )
    assert "are 4 groups of 2 heads, for example: heads 0 and 2; heads 1 and 2; heads 0 and 3." in found  # fmt: skip
    alone = str(find_structure(game(3, lambda s: (0 in s) or {1, 2} <= s), "s_acc"))
    assert "Head 0 alone reaches 99 % of what all heads gain together. In all, 2 groups reach it while no smaller group within them does: 1 with 1 head and 1 with 2 heads." in alone  # fmt: skip


def test_any_task_and_probes_that_are_not_known():
    model, task = other_tasks.model_of(n_heads=2), other_tasks.most_frequent(40)
    analysis = cl.analyze_heads(model, task).with_groups()
    found = analysis.structure()
    assert found.metric == "l_acc"
    assert found.names[:2] == ("0.0", "0.1")
    assert found.alike is not None
    np.testing.assert_allclose(found.table["shapley"], analysis.shapley("l_acc"), atol=1e-12)
    assert replace(analysis, fits=None).structure("s_acc").alike is None
    with pytest.raises(ValueError, match="metric: expected 'l_acc' or"):
        analysis.structure("luck")


def test_values_that_are_not_finite_are_refused():
    with pytest.raises(ValueError, match="values: expected finite numbers"):
        find_structure(np.array([0.0, np.nan, 1.0, 1.0]), "s_acc")
    with pytest.raises(ValueError, match=r"one for each of 2\^a groups, got 3"):
        find_structure(np.zeros(3), "s_acc")
