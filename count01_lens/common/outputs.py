"""Nothing is overwritten that this library did not write, unless somebody says so.

A directory of results has a list, `.count01-lens.json`: by file, which command wrote it, and the
checksum of its content. The list is written before the files, with both contents that each may
have until then, so a command that is killed can be given again. While a command is at work there,
another one is refused, or the files of the two would be mixed. A page says in its head what made
it.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from count01_lens.common.storage import (
    check_file_to_write,
    json_bytes,
    locked,
    parse_json,
    read_file,
    remove_temporary_files,
    sha256,
    write_atomically,
)

LIST = ".count01-lens.json"
GENERATOR = '<meta name="generator" content="count01-lens">'
_HEAD = 4096  # bytes of a page, in which its generator is named
_REMEDY = "move it away, choose another path, or overwrite it with force=True"


def check_page_to_write(path: Path, *, force: bool = False) -> None:
    """Raise unless a page can go there: over nothing, or over a page of this library."""
    check_file_to_write(path)
    if force or not path.is_file():
        return
    with open(path, "rb") as file:
        head = file.read(_HEAD)
    if head and GENERATOR.encode() not in head:
        raise ValueError(f"{path}: expected a page of count01-lens, got another file; {_REMEDY}")


class Outputs:
    """The files that one command writes to a directory, and how it knows them again."""

    def __init__(self, directory: Path, by: str, *, force: bool = False):
        self.directory, self.by, self.force = directory, by, force
        self._written: set[str] = set()

    def check(self, *patterns: str) -> None:
        """Raise if files of such names are there that this command did not write."""
        if self.directory.exists() and not self.directory.is_dir():
            raise ValueError(f"{self.directory}: expected a directory, got a file")
        if self.force:
            return
        listed = self._listed()
        for path in sorted({path for name in patterns for path in self.directory.glob(name)}):
            about = listed.get(path.name, {})
            if about.get("by") == self.by and _sum_of(path) in about["sha256"]:
                continue
            got = "another file"
            if about:
                is_own = about["by"] == self.by
                got = "one that was changed" if is_own else f"one of count01-lens {about['by']}"
            expected = f"expected a file that count01-lens {self.by} wrote"
            raise ValueError(f"{path}: {expected}, got {got}; {_REMEDY}")

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Make the directory, and keep other commands out of it until all is written."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with locked(self.directory):
            remove_temporary_files(self.directory)
            yield

    def write(self, files: Mapping[str, bytes]) -> None:
        """Write files, and put them on the list."""
        self.check(*files)
        listed = self._listed()
        new = {name: {"by": self.by, "sha256": [sha256(data)]} for name, data in files.items()}
        both = {
            name: {**about, "sha256": about["sha256"] + listed.get(name, {}).get("sha256", [])}
            for name, about in new.items()
        }
        write_atomically(self.directory / LIST, json_bytes(listed | both))
        for name, data in files.items():
            write_atomically(self.directory / name, data)
        write_atomically(self.directory / LIST, json_bytes(listed | new))
        self._written |= set(files)

    def remove_older(self) -> list[str]:
        """Delete what this command left here of an earlier run and has not written anew.

        Tables of one model beside figures of another would be taken for one. What somebody has
        changed stays.
        """
        listed = self._listed()
        older = [
            name
            for name, about in sorted(listed.items())
            if about["by"] == self.by and name not in self._written
        ]
        # A list that somebody else wrote must not lead to files elsewhere.
        here = [name for name in older if Path(name).name == name]
        sums = {name: _sum_of(self.directory / name) for name in here}
        removed = [name for name in here if sums[name] and sums[name] in listed[name]["sha256"]]
        for name in removed:
            (self.directory / name).unlink()
        if older:
            left = {name: about for name, about in listed.items() if name not in older}
            write_atomically(self.directory / LIST, json_bytes(left))
        return removed

    def _listed(self) -> dict[str, Any]:
        """By name, who wrote a file and its checksums; nothing where there is no good list."""
        try:
            listed = parse_json(read_file(self.directory / LIST))
            return {name: {"by": str(one["by"]), "sha256": list(one["sha256"])}
                    for name, one in listed.items()}  # fmt: skip
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return {}


def _sum_of(path: Path) -> str | None:
    try:
        return sha256(read_file(path))
    except OSError:
        return None
