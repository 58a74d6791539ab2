"""The explorer as one ES module: the files of data/explorer in their order, without imports.

No build step, and nothing to load: the text is what anywidget runs in a notebook, and what a page
carries. Names at the top of those files are different in all of them; a test holds that.
"""

import re
from functools import cache
from importlib import resources

# Each imports from those before it only.
ENGINE = ("numbers.js", "tables.js", "attention.js", "newton.js", "readout.js", "measure.js")
PAGE = (
    "elements.js", "scales.js", "theme.js", "wording.js", "state.js", "scatter.js", "controls.js",
    "cards.js", "sentence.js", "summary.js", "head_page.js", "explorer.js",
)  # fmt: skip
_IMPORT = re.compile(r"^import [^;]*? from \"\.{1,2}/[\w./]+\";\n", re.MULTILINE)
_EXPORT = re.compile(r"^export (?=const |function |class |let |async )", re.MULTILINE)


@cache
def module_file(name: str, directory: str) -> str:
    """Read a file of a module."""
    return (resources.files("count01_lens") / "data" / directory / name).read_text("utf-8")


def explorer_file(name: str) -> str:
    """Read a file of the explorer."""
    return module_file(name, "explorer")


def joined(names: tuple[str, ...], directory: str = "explorer") -> str:
    """Put modules one after the other, as one without imports or exports."""
    parts = (_EXPORT.sub("", _IMPORT.sub("", module_file(name, directory))) for name in names)
    return "\n".join(parts)


@cache
def explorer_module() -> str:
    """The explorer, whose default export is what anywidget asks for, and `mount` for pages."""
    return joined((*ENGINE, *PAGE)) + "\nexport { mount };\nexport default { render };\n"


@cache
def explorer_style() -> str:
    """Its style sheet."""
    return explorer_file("explorer.css")
