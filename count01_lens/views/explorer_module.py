"""The explorer as one ES module: the files of data/explorer in their order, without imports.

No build step, and nothing to load: the text is what anywidget runs in a notebook, and what a page
carries. Names at the top of those files are different in all of them; a test holds that.
"""

import re
from functools import cache
from importlib import resources

# Each imports from those before it only.
ENGINE = ("tables.js", "attention.js", "newton.js", "readout.js", "measure.js")
PAGE = (
    "elements.js", "scales.js", "wording.js", "state.js", "scatter.js", "controls.js", "cards.js",
    "sentence.js", "summary.js", "head_page.js", "explorer.js",
)  # fmt: skip
_IMPORT = re.compile(r"^import [^;]*? from \"\./[\w.]+\";\n", re.MULTILINE)
_EXPORT = re.compile(r"^export (?=const |function |class |let |async )", re.MULTILINE)


@cache
def explorer_file(name: str) -> str:
    """Read a file of the explorer."""
    return (resources.files("count01_lens") / "data" / "explorer" / name).read_text("utf-8")


def joined(names: tuple[str, ...]) -> str:
    """Put modules one after the other, as one without imports or exports."""
    parts = (_EXPORT.sub("", _IMPORT.sub("", explorer_file(name))) for name in names)
    return "\n".join(parts)


@cache
def explorer_module() -> str:
    """The explorer, whose default export is what anywidget asks for, and `mount` for pages."""
    return joined((*ENGINE, *PAGE)) + "\nexport { mount };\nexport default { render };\n"


@cache
def explorer_style() -> str:
    """Its style sheet."""
    return explorer_file("explorer.css")
