"""The check of the built documentation notices pages that ask other hosts, and a search that fails."""

import sys

import pytest

from experiments.tools import check_site
from tests.browsers import needs_chromium

pytestmark = needs_chromium
PAGE = "<!doctype html><meta charset='utf-8'><title>A page</title>{}"
FINDS = (
    "<ul id='search-results'></ul><script>document.querySelector('#search-results').innerHTML ="
    "'<li><a href=\"index.html\">' + new URLSearchParams(location.search).get('q') + '</a></li>'"
    "</script>"
)
FETCHES = FINDS + "<script>fetch('index.html')</script>"


def site(tmp_path, *, index="", search=FINDS):
    (tmp_path / "index.html").write_text(PAGE.format(index), "utf-8")
    (tmp_path / "search.html").write_text(PAGE.format(search), "utf-8")
    return tmp_path


def test_a_site_that_needs_nothing_passes(tmp_path, monkeypatch, capsys):
    site(tmp_path)
    monkeypatch.chdir(tmp_path.parent)  # as make names it, from where it is
    monkeypatch.setattr(sys, "argv", ["check_site", tmp_path.name])
    check_site.main()
    assert "the search works" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({"index": "<img src='https://example.org/a.png'>"}, "index.html: asks for https://exam"),
        ({"index": "<script>nothing_known()</script>"}, "index.html: error: nothing_known is not"),
        ({"search": FETCHES}, "search.html: error: "),
    ],
)
def test_what_is_wrong_is_named_with_its_page(tmp_path, parts, expected):
    assert any(found.startswith(expected) for found in check_site.problems(site(tmp_path, **parts)))


def test_a_search_without_results_is_wrong(tmp_path, monkeypatch):
    monkeypatch.setattr(check_site, "LONGEST_SEARCH", 500)
    empty = site(tmp_path, search="<ul id='search-results'></ul>")
    assert any("nothing was found" in found for found in check_site.problems(empty))


def test_a_directory_without_a_site_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["check_site", str(tmp_path)])
    with pytest.raises(SystemExit, match=r"found no index\.html"):
        check_site.main()
