"""A Dask cluster as the place where jobs run.

How a cluster comes about is Dask's business: `dask scheduler` and `dask worker` on any machines,
`dask_jobqueue` on Slurm. Workers need the same versions of the libraries, and no shared disk.
"""

from collections.abc import Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from count01_lens.common.validation import check_number

if TYPE_CHECKING:
    from distributed import Client


class ClusterError(RuntimeError):
    """There is no cluster to work on."""


class DaskExecutor(Executor):
    """Runs functions on the workers of a Dask cluster."""

    def __init__(self, client: "Client"):
        self._client = client
        # Equal calls are different tries, never one answered twice.
        self._executor: Executor = client.get_executor(pure=False)
        self._slots = 0

    def submit(self, function: Any, /, *arguments: Any, **named: Any) -> Future[Any]:
        """Hand a call to the scheduler."""
        return self._executor.submit(function, *arguments, **named)

    @property
    def slots(self) -> int:
        """How many calls can run at a time: threads of the workers that are there now."""
        if self._client.status != "running":
            return 0
        # One that dies while it is asked must not hold us up: till then the last answer stands.
        with suppress(OSError, RuntimeError):
            self._slots = sum(self._client.nthreads(callback_timeout=2).values())
        return self._slots

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls."""
        self._executor.shutdown(wait=wait and not cancel_futures)


@contextmanager
def dask_executor(address: str, *, timeout: float = 10.0) -> Iterator[DaskExecutor]:
    """Connect to the scheduler of a Dask cluster, for `run_jobs(..., executor=...)`.

    Args:
        address: of the scheduler, such as "tcp://host:8786".
        timeout: seconds to wait for it. Workers may come and go at any time.

    Raises:
        ClusterError: Dask is not installed, or no scheduler answers at the address.
    """
    check_number("timeout", timeout, above=0)
    if not isinstance(address, str) or not address.startswith(("tcp://", "tls://")):
        raise ValueError(f"dask: expected an address such as tcp://host:8786, got {address!r}")
    try:
        from distributed import Client
    except ImportError:
        raise ClusterError(
            "dask.distributed: expected to be installed, got nothing; "
            "pip install 'count01-lens[cluster]'"
        ) from None
    try:
        client = Client(address, timeout=timeout, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ClusterError(
            f"{address}: expected a Dask scheduler, got no answer in {timeout:g} s ({error}); "
            "start one with: dask scheduler"
        ) from error
    with client:
        yield DaskExecutor(client)


@contextmanager
def workplace(workers: int | None, dask: str | None) -> Iterator[dict[str, Any]]:
    """Turn what command lines take, `--workers` or `--dask`, into arguments of `run_jobs`."""
    if dask is None:
        yield {"workers": workers}
        return
    if workers is not None:
        raise ValueError("expected --workers or --dask, got both; the cluster has its own workers")
    with dask_executor(dask) as executor:
        yield {"executor": executor}
