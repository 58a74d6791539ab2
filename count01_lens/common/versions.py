"""Which versions a result was made with."""

from importlib.metadata import PackageNotFoundError, version


def library_versions() -> dict[str, str]:
    """Versions of this package and of the libraries that its numbers depend on."""
    packages = ("count01-lens", "torch", "numpy", "transformer-lens")
    return {package: _version(package) for package in packages}


def own_version() -> str:
    """Version of this package."""
    return _version("count01-lens")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # run from a checkout that was never installed
        return "unknown"
