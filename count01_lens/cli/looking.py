"""Commands that draw a page to look at."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from count01_lens.cli.files import Checkpoint
from count01_lens.common.parsing import parse_numbers, parse_ratio


def view(
    checkpoint: Checkpoint,
    sentence: Annotated[str, typer.Argument(help="Such as '0110=' or '0110=4'.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="HTML file to write.")],
    heads: Annotated[
        str | None, typer.Option(help="Heads to show: '3', '0-7' or '1,5,7'.", show_default="all")
    ] = None,
    w01: Annotated[
        str | None, typer.Option(help="Patch: attention of one '0' over one '1'; 0 and inf too.")
    ] = None,
    w02: Annotated[
        str | None, typer.Option(help="Patch: attention of one '0' over one '2'; 0 and inf too.")
    ] = None,
    others: Annotated[
        Literal["zero", "keep"],
        typer.Option(help="Patch: whether '[BOS]' and '=' get nothing or keep their weights."),
    ] = "zero",
) -> None:
    """Draw the attention of a sentence, and each head's direct logit attribution, as one page.

    With --w01 or --w02 also the attention before and after the patch. The file needs no internet.
    """
    from count01_lens.models.checkpoints import load_checkpoint
    from count01_lens.views.attention_view import compare_attention, page_of, show_attention
    from count01_lens.views.attribution_view import show_attribution
    from count01_lens.views.document import write_page

    ratios = {name: parse_ratio(text, name) for name, text in (("w01", w01), ("w02", w02))}
    chosen = None if heads is None else parse_numbers(heads, "heads")

    def make() -> str:
        model = load_checkpoint(checkpoint)
        views = [show_attention(model, sentence, heads=chosen)]
        if w01 is not None or w02 is not None:
            views.append(compare_attention(model, sentence, **ratios, heads=chosen, others=others))
        views.append(show_attribution(model, sentence, heads=chosen))
        return page_of(views[0].title, views)

    write_page(out, make)
    typer.echo(f"written to {out}: open it in a browser")
