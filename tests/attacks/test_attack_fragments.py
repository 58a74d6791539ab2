"""The explorer's address as an attacker's input: shown or refused, never an error, never markup."""

from collections import Counter

import pytest

import count01_lens as cl
from count01_lens.views.explorer_data import Explored
from count01_lens.views.explorer_page import write_explorer
from tests.attacks import attack_and_keep
from tests.attacks.fragments import GOOD, attack_fragments, fragments
from tests.browsers import chromium_page, needs_chromium

pytestmark = pytest.mark.slow
LOOK = """() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done({
  // The message repeats what was given.
  text: [...document.querySelectorAll(".c01x > *, .c01x [data-value]:not([data-value=message])")]
    .filter((part) => !part.querySelector("[data-value=message]") && part.dataset.value !== "message")
    .map((part) => part.innerText).join(" "),
  message: document.querySelector(".c01x [data-value=message]").innerText,
  elements: document.querySelectorAll(".c01x script, .c01x img, .c01x iframe, .c01x h1").length,
  scripts: document.scripts.length,
  polluted: Object.keys(Object.prototype).length + Number({}.constructor !== Object),
}))))"""


def assert_good(outcomes: Counter[str], cases: int) -> None:
    assert set(outcomes) <= GOOD, outcomes
    assert sum(outcomes.values()) == cases
    assert min(outcomes["shown"], outcomes["refused with a sentence"]) > cases / 100


def test_fragments_are_read_or_refused():
    assert_good(attack_fragments(3000, seed=0), 3000)


@pytest.mark.stress
def test_many_fragments_are_read_or_refused():
    what = (
        "addresses of the explorer made of hostile text, names of JavaScript's own, endless text "
        "and numbers such as 1e999, −0 and NaN"
    )
    assert_good(attack_and_keep("fragments", what, attack_fragments, 300_000, seed=1), 300_000)


@needs_chromium
def test_a_page_stays_whole_whatever_its_address(tmp_path):
    file = write_explorer(tmp_path / "explorer.html", [Explored(cl.example_model(), name="one")])
    odd = ["weights=0:0", "w01=-0", "w01=1e308&w02=5e-324", "weights=0:1e308,1:1e308,2:1e308"]
    odd += [
        "weights=0:5e-324",
        "n=0,0,0&w01=0",
        "w01=inf&w02=inf&n=0,5,5",
        "off=" + ",".join(map(str, range(16))),
    ]
    given = [f"#explore?{each}" for each in odd] + fragments(60, seed=2)
    with chromium_page() as page:
        page.goto(file.as_uri())
        page.locator(".c01x .card").first.wait_for(state="attached")
        start = page.evaluate(LOOK)
        assert "l-acc" in start["text"]
        refused: list[bool] = []
        for fragment in given:
            # As a link in the page, and every tenth as a page that is opened.
            if given.index(fragment) % 10 == 0:
                page.goto("about:blank")
                page.goto(file.as_uri() + fragment)
                page.locator(".c01x .card").first.wait_for(state="attached")
            else:
                page.evaluate("fragment => { location.hash = fragment.slice(1); }", fragment)
            seen = page.evaluate(LOOK)
            assert "NaN" not in seen["text"], fragment[:300]
            assert "undefined" not in seen["text"], fragment[:300]
            assert len(seen["message"]) <= 300, fragment[:300]
            refused.append(bool(seen["message"]))
            for name in ("elements", "scripts", "polluted"):
                assert seen[name] == start[name], (name, fragment[:300])
            assert page.errors == [], fragment[:300]
        assert page.outside == []
        assert 10 < sum(refused) < len(given) - 5
