"""HTML that people look at: written by templates, into documents that ask nobody for anything.

Templates, style sheets and scripts lie in `data/pages`. What is not `Markup` is text, and is
escaped. Pieces of pages are `Markup`; whole documents and outputs of notebooks, which are put into
nothing else, are plain strings. A document carries all it shows, and its policy forbids the browser
every request.
"""

from collections.abc import Callable
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from count01_lens.common.outputs import GENERATOR
from count01_lens.common.storage import check_file_to_write, write_atomically


@cache
def page_file(name: str) -> Markup:
    """Read a style sheet or a script of the package."""
    return Markup((resources.files("count01_lens") / "data" / "pages" / name).read_text("utf-8"))


_TEMPLATES = Environment(
    loader=PackageLoader("count01_lens", "data/pages"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.globals["file"] = page_file
_TEMPLATES.globals["generator"] = Markup(GENERATOR)
_TEMPLATES.policies["json.dumps_kwargs"] = {}  # names in the order that they were given in


def render(template: str, **values: Any) -> Markup:
    """Fill in a template."""
    return Markup(_TEMPLATES.get_template(f"{template}.j2").render(values))


def element(tag: str, *content: str, **attributes: str | None) -> Markup:
    """Write an element; `class_` is `class`, `aria_label` is `aria-label`, None leaves it out."""
    written = Markup().join(
        # In quotation marks even markup is text.
        Markup(' {}="{}"').format(name.rstrip("_").replace("_", "-"), str(value))
        for name, value in attributes.items()
        if value is not None
    )
    ending = Markup() if tag == "img" else Markup("{}</{}>").format(Markup().join(content), tag)
    return Markup("<{}{}>{}").format(tag, written, ending)


def in_notebook(*content: str) -> str:
    """Put pieces into an output of a notebook, with the styles for them."""
    style = element("style", page_file("notebook.css"))
    return str(style + element("div", *content, class_="count01"))


def in_frame(page: str, title: str) -> str:
    """Show a whole document in an output of a notebook; its styles stay inside."""
    frame = Markup(
        '<iframe data-count01 srcdoc="{}" title="{}" '
        'style="width: 100%; height: 720px; border: 0"></iframe>'
    )
    return str(frame.format(str(page), title))


def write_page(path: Path, make: Callable[[], str]) -> Path:
    """Write a document to a file: what is in the way is said before the document is made."""
    check_file_to_write(path)
    write_atomically(path, make().encode())
    return path
