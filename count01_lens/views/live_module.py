"""What shows a training, as one ES module for notebooks and for the page, like the explorer's."""

from functools import cache

from markupsafe import Markup

from count01_lens.views.document import render
from count01_lens.views.explorer_module import joined, module_file

_SHARED = ("numbers.js", "elements.js", "scales.js", "theme.js")
_OWN = ("series.js", "charts.js", "live.js")


@cache
def live_module() -> str:
    """Write the module: its default export is what anywidget asks for, and `watch` is for pages."""
    parts = joined(_SHARED) + "\n" + joined(_OWN, "live")
    return parts + "\nexport { watch };\nexport default { render };\n"


@cache
def live_style() -> str:
    """Its style sheet."""
    return module_file("live.css", "live")


def live_page() -> str:
    """Write the page that the command line serves."""
    style, module = Markup(live_style()), Markup(live_module())
    return str(render("live.html", title="Live training", style=style, module=module))
