"""HTML documents that carry all they show, and forbid the browser every request."""

import html
from importlib import resources

# For the head of a page, before anything that could ask for something.
NO_REQUESTS = """\
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; \
script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:">"""


def html_document(title: str, style: str, body: str) -> str:
    """Put a document together.

    Args:
        title: plain text.
        style: CSS.
        body: markup of all that is shown, and scripts.
    """
    return f"""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
{NO_REQUESTS}
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(title)}</title>
<style>
{style}</style>
</head>
{body}
</html>
"""


def page_file(name: str) -> str:
    """Read a style sheet or a script of the package."""
    return (resources.files("count01_lens") / "data" / "pages" / name).read_text("utf-8")
