"""Where the ranks of a run are: the text given to ``--on``, and the engine of the driver that it leads to.

``local:4`` starts four ranks on this machine, under an authority that ends with them: other users share its loopback
interface. Everything else was started before. Beyond this machine connections are encrypted and show certificates, or
are refused, unless the user asks for insecure ones.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tartan.base.format import show_value
from tartan.cluster.engine import ClusterEngine
from tartan.errors import ConfigError

if TYPE_CHECKING:
    from distributed import Client, Security

# By judgement: more ranks than any machine has cores for; a slip of the keyboard beyond it would fill memory. No
# benchmark.
MOST_LOCAL = 256
_FORMS = "local:4, tls://host:port, or the file of a scheduler with --scheduler-file"


@dataclass(frozen=True)
class ClusterTarget:
    """Where the ranks are: a number of processes to start here, or the address of a Dask scheduler.

    Attributes
    ----------
    n_local : int
        0 where a scheduler runs already.
    address : str
        Of that scheduler.
    """

    n_local: int = 0
    address: str = ""


def parse_cluster(
    text: str | None, *, scheduler_file: str | Path | None = None, insecure: bool = False
) -> ClusterTarget:
    """Return where the ranks are.

    Parameters
    ----------
    text : str, optional
        ``local:N``, or the address of a Dask scheduler.
    scheduler_file : path, optional
        File that ``dask scheduler --scheduler-file`` has written, in place of the text.
    insecure : bool
        Accept connections beyond this machine that anyone may read and forge.

    Raises
    ------
    ConfigError
        If neither or both are given, or one of them says nothing that can be used.

    Examples
    --------
    >>> parse_cluster("local:4")
    ClusterTarget(n_local=4, address='')
    >>> parse_cluster("tls://node7:8786")
    ClusterTarget(n_local=0, address='tls://node7:8786')
    """
    if (text is None) == (scheduler_file is None):
        raise ConfigError(f"a cluster is one of {_FORMS}")
    if text is None:
        return _remote(_address_in(Path(str(scheduler_file))), insecure)
    if text.partition(":")[0].strip() == "local":
        return _local(text)
    return _remote(text, insecure)


def _local(text: str) -> ClusterTarget:
    number = text.partition(":")[2].strip()
    if not re.fullmatch(r"[0-9]{1,9}", number) or not 1 <= int(number) <= MOST_LOCAL:
        raise ConfigError(f"--on {text!r}: local:N starts N ranks on this machine, N from 1 to {MOST_LOCAL}")
    return ClusterTarget(n_local=int(number))


def _remote(address: str, insecure: bool) -> ClusterTarget:
    match = re.fullmatch(r"(\w+)://(\[[0-9a-fA-F:.%]+\]|[\w.-]+):([0-9]{1,5})/?", address.strip())
    if match is None or match[1] not in ("tls", "tcp") or not 1 <= int(match[3]) <= 65535:
        raise ConfigError(f"--on {address!r} is not an address of a Dask scheduler; a cluster is one of {_FORMS}")
    if match[1] == "tcp" and not insecure and not is_loopback(match[2].strip("[]")):
        raise ConfigError(
            f"--on {address!r}: without TLS anyone who reaches {match[2]} could run code there and here; make "
            "certificates with `tartan cluster-certs DIR` and start scheduler and workers with them, or write "
            "--insecure on a network that you alone use"
        )
    return ClusterTarget(address=address.strip().rstrip("/"))


def is_loopback(host: str) -> bool:
    """Whether a name or address is this machine's loopback interface; names other than localhost are not looked up."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host == "localhost"


def _address_in(path: Path) -> str:
    try:
        found = json.loads(path.read_text())["address"]
    except OSError as error:
        raise ConfigError(f"--scheduler-file {path} cannot be read: {error.strerror}; is the scheduler up?") from None
    except (ValueError, KeyError, TypeError):
        raise ConfigError(f"--scheduler-file {path} is not the file of a Dask scheduler: it has no address") from None
    if not isinstance(found, str):
        raise ConfigError(f"--scheduler-file {path} is not the file of a Dask scheduler: its address is not text")
    return found


@contextlib.contextmanager
def open_engine(
    target: ClusterTarget | Client, run: str, *, entry: str, insecure: bool = False, patience_seconds: float = 15.0
) -> Iterator[ClusterEngine]:
    """Yield the driver's engine, not started yet; end what was started for it afterwards.

    Parameters
    ----------
    target : ClusterTarget or distributed.Client
        Where the ranks are; a client stays open.
    run : str
        Names one execution of a run; no two at a time may have the same name.
    entry : str
        ``module:function`` that every rank runs, with its engine, in a process of its own.
    insecure : bool
        Accept a client whose connections beyond this machine anyone may read and forge.
    patience_seconds : float
        Silence of the driver after which a rank ends.

    Raises
    ------
    ConfigError
        If the extra is missing, the target is not a cluster, or there are no certificates that hold.
    ClusterError
        If the scheduler cannot be reached.
    """
    dask_engine = _dask_engine()
    if not isinstance(target, ClusterTarget):
        if not hasattr(target, "scheduler"):
            raise ConfigError(f"{show_value(target)} is not a cluster; give one of {_FORMS}, or a client of Dask")
        _remote(str(target.scheduler.address), insecure)
    with _client(dask_engine, target) as client:
        engine = dask_engine.DaskEngine(client, run, entry=entry, patience_seconds=patience_seconds)
        try:
            yield engine
        finally:
            engine.leave("the driver has ended")


@contextlib.contextmanager
def _client(dask_engine: Any, target: ClusterTarget | Client) -> Iterator[Any]:
    if not isinstance(target, ClusterTarget):
        yield target
    elif target.n_local:
        with dask_engine.local_client(target.n_local, _local_security()) as client:
            yield client
    else:
        with dask_engine.remote_client(target.address, _remote_security(dask_engine, target.address)) as client:
            yield client


def _local_security() -> Security:
    from tartan.cluster.certs import temporary_credentials

    return _dask_engine().security_of(temporary_credentials())


def _remote_security(dask_engine: Any, address: str) -> Security:
    """Return the certificates that Dask's settings name; for addresses without TLS none."""
    from tartan.cluster.certs import require_valid

    security = dask_engine.read_security()
    if not address.startswith("tls://"):
        return security
    try:
        found = dask_engine.credentials_of(security, b"")
    except OSError as error:
        raise ConfigError(f"the certificates of this process cannot be read: {error}") from None
    if not found.encrypted:
        raise ConfigError(
            f"{address} wants a certificate, and Dask's settings name none: make them with `tartan cluster-certs DIR`, "
            "and set DASK_CONFIG=DIR for the scheduler, for every worker and for this command"
        )
    require_valid(found)
    return security


def _dask_engine() -> Any:
    try:
        from tartan.cluster import dask_engine
    except ImportError as error:
        raise ConfigError(f"--on needs the extra cluster: pip install 'tartan-allpairs[cluster]' ({error})") from None
    return dask_engine
