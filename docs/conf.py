"""How the documentation is built: `make docs`."""

import os
import sys
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent)]
# Notebooks run in processes of their own: none of them needs to ask anybody whether it is offline.
os.environ.setdefault("HF_HUB_OFFLINE", "1")

project = "count01_lens"
author = "the count01_lens contributors"
release = version = version_of("count01-lens")
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "mathml",
]
exclude_patterns = ["_build", "_ext", "reproduction", "trust"]
default_role = "literal"  # docstrings write names as in Markdown

# Pages and notebooks
myst_enable_extensions = ["dollarmath", "deflist", "colon_fence"]
myst_heading_anchors = 3
nb_execution_mode = "force"  # what a page shows is what this version of the library gives
nb_execution_timeout = 600
nb_execution_in_temp = True  # pages write files; none into the docs
nb_execution_raise_on_error = True
nb_merge_streams = True
nb_execution_show_tb = True
nb_ipywidgets_js = {}  # it would come from another host

# API reference
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # signatures without types fit on a line; the text names what matters
autodoc_typehints_format = "short"
napoleon_google_docstring = True
napoleon_numpy_docstring = False

# Pages
html_theme = "furo"
html_title = "count01_lens"
html_static_path = ["_static"]
html_css_files = ["extra.css"]
html_show_sphinx = html_show_copyright = False
html_copy_source = False
html_show_search_summary = False  # pages opened from disk may not fetch others
html_math_renderer = "mathml"
html_theme_options = {"navigation_with_keys": True}


def write_reproduction_report(app: Any) -> None:
    """Put the report of the full run beside the pages; results that do not fit stop the build."""
    from experiments.report import write_report

    if app.builder.format == "html":
        Path(app.outdir).mkdir(parents=True, exist_ok=True)
        write_report(HERE / "reproduction", Path(app.outdir) / "reproduction_report.html")


def write_front_page_explorer(app: Any) -> None:
    """Put the explorer of the bundled model and of the controls beside the front page."""
    import count01_lens as cl
    from count01_lens.views.explorer_data import Explored
    from count01_lens.views.explorer_page import write_explorer

    if app.builder.format != "html":
        return
    models = {
        "bundled model, 16 heads": "cl.example_model()",
        "minimal solution, 1 head": "cl.minimal_model()",
        "cooperative control, 2 heads": "cl.cooperative_model()",
        "ensemble control, 4 heads": "cl.ensemble_model()",
    }
    explored = [
        Explored(getattr(cl, code[3:-2])(), name=name, python=code) for name, code in models.items()
    ]
    write_explorer(Path(app.outdir) / "explorer.html", explored, "count01_lens: explorer")


def setup(app: Any) -> None:
    """Register with Sphinx."""
    app.connect("builder-inited", write_reproduction_report)
    app.connect("builder-inited", write_front_page_explorer)
