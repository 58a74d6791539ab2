"""What somebody may have meant by a path at which nothing is."""

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from pathlib import Path

_MOST = 3


def did_you_mean(path: Path, suffix: str, fits: Callable[[Path], bool]) -> str:
    """Name files that fit: those in a directory of this name, else those with a similar path.

    Args:
        path: of a file that is not there, with its suffix.
        suffix: of such files; where people may leave it out, suggestions do.
        fits: whether a file is of the kind that is looked for.

    Returns:
        The end of a message, such as "; did you mean runs/first/seed-0?"; empty if nothing fits.
    """
    directory = path.with_suffix("") if path.suffix == suffix else path
    inside = _files(directory, suffix, fits)
    if directory.is_dir():
        if not inside:
            return f"; {directory} is a directory, without such a file in it"
        return f"; {directory} is a directory: did you mean {_listed(inside)}?"
    parent = _nearest(path.parent)
    names = {one.stem: one for one in _files(parent, suffix, fits)} if parent else {}
    typed = (directory.name, directory.stem)  # perhaps with another suffix
    close = next(filter(None, (get_close_matches(name, names, _MOST) for name in typed)), [])
    return f"; did you mean {_listed([names[name] for name in close])}?" if close else ""


def _nearest(directory: Path) -> Path | None:
    """A directory, or, where it is not there, that with the most similar name."""
    if directory.is_dir():
        return directory
    if directory.parent == directory or (above := _nearest(directory.parent)) is None:
        return None
    names = [one.name for one in _entries(above) if one.is_dir()]
    close = get_close_matches(directory.name, names, 1)
    return above / close[0] if close else None


def _files(directory: Path, suffix: str, fits: Callable[[Path], bool]) -> list[Path]:
    return [one for one in _entries(directory) if one.suffix == suffix and fits(one)]


def _entries(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except OSError:
        return []


def _listed(files: Iterable[Path]) -> str:
    first, *others = [str(file).removesuffix(".safetensors") for file in files]
    shown = [first, *others[: _MOST - 1]]
    return " or ".join(shown) + (
        f" or {len(others) + 1 - _MOST} more" if len(others) >= _MOST else ""
    )
