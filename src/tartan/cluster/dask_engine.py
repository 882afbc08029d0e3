"""Ranks on the workers of a Dask cluster. The only module that imports ``distributed``; imported in functions alone.

Dask starts processes, connects them and says when one is gone; it is given no task. Each worker holds a relay
(``tartan.cluster.relay``), whose child is the rank. The driver listens as a worker does, so that ranks reach it
without a detour by the scheduler.

A program that can connect to a Dask process can run code in it. So connections beyond this machine are encrypted, and
both ends show a certificate of the run's authority; ``tartan.cluster.launch`` sees to that.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from functools import partial
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import dask
from distributed import Client, LocalCluster, Security, Worker, WorkerPlugin
from distributed.comm import CommClosedError, get_local_address_for
from distributed.core import Server

from tartan.base.logs import active_settings, logger_of
from tartan.base.machine import tartan_version
from tartan.base.signals import leave_interrupts_to_others, wait_for
from tartan.cluster import wire
from tartan.cluster.courier import About, Courier, Directory
from tartan.cluster.engine import DRIVER, Capabilities, ClusterView, Credentials, PeerLost
from tartan.cluster.relay import PATIENCE_SECONDS, Relay, RelayTask, host_of, is_refused
from tartan.cluster.station import Roll, Station, fail, settle
from tartan.errors import ClusterError

SETTINGS: dict[str, Any] = {
    "distributed.comm.timeouts.connect": "3s",
    "distributed.comm.timeouts.tcp": "15s",  # below 11 s connections fail in an assertion
    "distributed.scheduler.worker-ttl": None,  # the driver counts silence, and knows when it slept itself
    "distributed.scheduler.work-stealing": False,
    "distributed.scheduler.active-memory-manager.start": False,
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    "distributed.worker.profile.enabled": False,
}
"""Of Dask, while a cluster of this process runs: it carries messages and computes nothing."""

LAUNCH = {"distributed.comm.timeouts.connect": "60s"}
"""While ranks are started: a machine that is busy with that answers late, and is not lost."""

# By judgement: a machine that is busy answers late. No benchmark.
_CONNECT_SECONDS = 10
# By judgement: what is still to be said at the end is a few messages; the cluster must not hang on one that is gone. No
# benchmark.
_CLOSE_SECONDS = 5.0
# By judgement: a scheduler that is gone is known to be within two seconds; a look costs nothing.
_LOOK_SECONDS = 0.5
# By judgement: two refusals half a second apart, as of a driver. No benchmark.
SCHEDULER_REFUSALS = 2
_log = logger_of(__name__)


class DaskEngine(Station):
    """The driver's engine on a Dask cluster.

    Parameters
    ----------
    client : distributed.Client
        Connected, and not asynchronous.
    run : str
        Names one execution of a run.
    entry : str
        ``module:function`` that every rank runs, with its engine.
    patience_seconds : float
        Silence of the driver after which a rank ends.
    """

    def __init__(
        self,
        client: Client,
        run: str,
        *,
        entry: str,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self._client, self._entry, self._patience_seconds = client, entry, patience_seconds
        scheduler = str(client.scheduler.address)
        super().__init__(
            run, DRIVER, Capabilities(elastic=True, survives_loss=True, encrypted=_is_encrypted(scheduler))
        )
        self.credentials = credentials_of(client.security, secrets.token_bytes(32))
        self.host = host_of(get_local_address_for(scheduler))
        # Of the event loop:
        self._scheduler = scheduler
        self._service = f"tartan-{run}"
        self._roll = Roll()
        self._heard: dict[str, float] = {}
        self._scheduler_is_gone = False
        self._unfit: set[str] = set()
        self._refused: set[str] = set()
        self._pushing: set[str] = set()
        self._jobs: set[asyncio.Task[None]] = set()
        keys = client.security.get_connection_args(role_of(client.security))
        self._server = Server({self._service: self._take}, needs_workdir=False, connection_args=keys)
        self._courier = Courier(DRIVER, partial(send, self._server, self._service))

    @property
    def address(self) -> str:
        """Where ranks reach the driver, once it is started."""
        return str(self._server.address)

    # Station

    def silence_seconds(self, peer: str) -> float:
        """Return how long nothing came from a rank; infinite where it never joined."""
        return time.monotonic() - self._heard.get(peer, float("-inf"))

    def expel(self, peer: str, reason: str) -> None:
        """End the membership of a rank, soon."""
        _log.info("rank %s is given up: %s", peer, reason)
        self._on_loop(partial(self._publish_without, peer, reason))

    def _join(self) -> None:
        self._client.sync(self._open)
        token, patience = self.credentials.token, self._patience_seconds
        _log.info("the driver of %s listens on %s, scheduler %s", self._run, self._server.address, self._scheduler)
        settings = active_settings()
        task = RelayTask(self._run, self._server.address, self._entry, token, patience_seconds=patience, log=settings)
        self._client.subscribe_topic("all", self._hear_scheduler)
        try:
            with dask.config.set(LAUNCH):
                self._client.sync(self._note_unfit_workers)
                self._register(RelayPlugin(task, self._service))
        except (OSError, TimeoutError) as error:
            raise _make_unstarted_error(error) from None

    def _register(self, plugin: RelayPlugin) -> None:
        """Give a relay to every worker; those that cannot take it are named, and do not stop the others."""
        try:
            self._client.register_plugin(plugin)
        except (OSError, TimeoutError):
            raise
        except Exception as error:  # of a worker, whatever it is
            _log.warning("a worker could not take a relay: %s: %s", type(error).__name__, error)
            if not self._unfit:
                reason = f"{type(error).__name__}: {error}"
                self._on_loop(lambda: self._publish(self._roll.note("a worker of the cluster", reason)))

    async def _note_unfit_workers(self, workers: list[str] | None = None) -> None:
        """Name the workers that have no Tartan, or another version of it."""
        found = await self._client._run(eval, ABOUT_WORKER, workers=workers, on_error="return")
        for address, about in found.items():
            reason = describe_unfit(about, tartan_version())
            if reason and address not in self._unfit:
                host = f" on {about[0]}" if isinstance(about, tuple) else ""
                self._unfit.add(address)
                self._publish(self._roll.note(f"the Dask worker {address}{host}", reason))

    async def _look_at(self, worker: str) -> None:
        with contextlib.suppress(Exception):  # it may have gone again; who joins says its version anyway
            await self._note_unfit_workers([worker])

    def _carry(self, peer: str, data: bytes, waiting: Future[bytes] | None, timeout_seconds: float) -> None:
        if waiting is None:
            self._on_loop(lambda: self._spawn(self._courier.post(peer, data)))
        else:
            self._on_loop(lambda: self._spawn(self._ask(peer, data, waiting, timeout_seconds)))

    def _depart(self, reason: str) -> None:
        with contextlib.suppress(OSError, TimeoutError, ValueError):
            if not self._scheduler_is_gone:
                self._client.unsubscribe_topic("all")
        with contextlib.suppress(OSError, TimeoutError):
            self._client.sync(self._close, reason, callback_timeout=3 * _CLOSE_SECONDS)

    # The event loop

    def _on_loop(self, act: Callable[[], object]) -> None:
        self._client.loop.asyncio_loop.call_soon_threadsafe(act)

    def _spawn(self, job: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(job)
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)

    async def _open(self) -> None:
        keys = self._client.security.get_listen_args(role_of(self._client.security))
        await self._server.listen(get_local_address_for(self._scheduler), **keys)
        self._publish(self._roll.join(DRIVER))
        self._spawn(self._watch_scheduler())

    async def _close(self, reason: str) -> None:
        self._publish_without(DRIVER, reason)
        pushes = [job for job in self._jobs if job.get_name() == "view"]
        if pushes:
            await asyncio.wait(pushes, timeout=_CLOSE_SECONDS)
        for job in list(self._jobs):
            job.cancel()
        if not self._scheduler_is_gone:
            with contextlib.suppress(Exception):  # whatever a scheduler that is going makes of it
                await asyncio.wait_for(self._client.unregister_worker_plugin(self._service), _CLOSE_SECONDS)
        await self._server.close()

    async def _watch_scheduler(self) -> None:
        refusals = 0
        while self._client.status in ("running", "connecting", "newly-created") and refusals < SCHEDULER_REFUSALS:
            await asyncio.sleep(_LOOK_SECONDS)
            lost = self._client.status == "connecting"  # it tries for ten seconds, whatever it hears
            refusals = refusals + 1 if lost and await is_refused(self._scheduler) else 0
        self._scheduler_is_gone = True
        _log.warning("the Dask scheduler at %s is gone", self._scheduler)
        self._publish_without(DRIVER, f"the Dask scheduler at {self._scheduler} is gone")

    async def _ask(self, peer: str, data: bytes, waiting: Future[bytes], seconds: float) -> None:
        answer = await self._courier.request(peer, data, seconds)
        if "data" in answer:
            settle(waiting, answer["data"])
        elif "lost" in answer:
            fail(waiting, PeerLost(str(answer["lost"]), context={"peer": peer}))

    # What arrives

    async def _take(self, do: str, data: bytes = b"", **fields: Any) -> Mapping[str, Any]:
        if do == "post":
            if self._courier.takes(**fields):
                self.receive(data, None)
        elif do == "message":
            return await self._answered(data, float(fields["seconds"]))
        elif do == "join":
            return self._admit(data)
        elif do == "beat":
            return self._beat(str(fields["name"]), int(fields["epoch"]))
        elif do == "gone":
            _log.info("rank %s has gone: %s", fields["name"], fields["reason"])
            if str(fields["name"]) in self._refused:
                return {}  # it is named already
            self._publish(self._roll.note(str(fields["name"]), str(fields["reason"])))
        return {}

    async def _answered(self, data: bytes, seconds: float) -> Mapping[str, Any]:
        loop = asyncio.get_running_loop()
        reply: asyncio.Future[bytes] = loop.create_future()

        def answer(found: bytes) -> None:
            loop.call_soon_threadsafe(_fulfil, reply, found)

        self.receive(data, answer)
        try:
            return {"data": await asyncio.wait_for(reply, seconds)}
        except TimeoutError:
            return {}

    def _admit(self, data: bytes) -> Mapping[str, Any]:
        if DRIVER not in self._roll.view.members:
            return {"over": True}
        about = None
        try:
            about = wire.decode(data, About)
            _require_same("Tartan", about.tartan, tartan_version())
            _require_same("the messages of ranks", about.messages, wire.VERSION)
            if self._courier.addresses.get(about.name) == about.address:
                return {"data": self._directory()}  # it did not get the answer
            view = self._roll.join(about.name)
        except ClusterError as error:
            _log.warning("a rank is refused: %s", error)
            if about is not None:
                self._refused.add(about.name)
                if about.address not in self._unfit:
                    self._publish(self._roll.note(f"rank {about.name} ({about.address})", str(error)))
            return {"refused": str(error)}
        self._heard[about.name] = time.monotonic()
        self._courier.addresses = {**self._courier.addresses, about.name: about.address}
        _log.info("rank %s is a member, its relay listens on %s", about.name, about.address)
        self._publish(view)
        return {"data": self._directory()}

    def _beat(self, name: str, epoch: int) -> Mapping[str, Any]:
        if name in self._roll.view.members:
            self._heard[name] = time.monotonic()
        return {"data": self._directory()} if epoch < self._roll.view.epoch else {}

    def _hear_scheduler(self, event: Any) -> None:
        about = event[1]  # the first is the time
        if isinstance(about, dict) and about.get("action") == "add-worker":
            self._spawn(self._look_at(str(about.get("worker"))))
        if isinstance(about, dict) and about.get("action") == "remove-worker":
            for name, address in list(self._courier.addresses.items()):
                if address == about.get("worker"):
                    _log.info("rank %s has gone: its Dask worker %s is gone", name, address)
                    self._publish_without(name, "its Dask worker is gone")

    # Views

    def _directory(self) -> bytes:
        return wire.encode(Directory(self._roll.view, {**self._courier.addresses, DRIVER: self._server.address}))

    def _publish_without(self, name: str, reason: str) -> None:
        self._publish(self._roll.remove(name, reason))

    def _publish(self, view: ClusterView | None) -> None:
        if view is None:
            return
        self.adopt(view)
        for name in set(self._courier.addresses) - self._pushing:
            self._pushing.add(name)
            self._spawn(self._push(name, self._courier.addresses[name]))
        known = self._courier.addresses.items()
        self._courier.addresses = {name: address for name, address in known if name in view.members}

    async def _push(self, name: str, address: str) -> None:
        """Send the newest view to one rank, until it has it; a beat finds out later where that fails."""
        task = asyncio.current_task()
        if task is not None:
            task.set_name("view")
        sent = 0
        try:
            while sent < self._roll.view.epoch:
                sent = self._roll.view.epoch
                await self._courier.call(address, do="view", data=self._directory())
        except OSError as error:
            _log.debug("rank %s did not take the members of epoch %d: %s", name, sent, error)
            return
        finally:
            self._pushing.discard(name)


ABOUT_WORKER = (
    "(__import__('socket').gethostname(), __import__('importlib.util', fromlist=['util']).find_spec('tartan') and "
    "__import__('tartan.base.machine', fromlist=['machine']).tartan_version())"
)
"""Evaluated in a worker, which may have no Tartan: its host, and the version of Tartan or None."""


def describe_unfit(about: Any, ours: str) -> str:
    """Return why a worker cannot become a rank, by what ``ABOUT_WORKER`` found there; empty where it can."""
    if isinstance(about, BaseException):
        return f"its Tartan cannot be imported: {type(about).__name__}: {about}"
    version = about[1]
    if version is None:
        return f"Tartan is not installed there; install {ours}, the version of the driver"
    if version != ours:
        return f"it has version {version} of Tartan, the driver {ours}: install the same on both"
    return ""


class RelayPlugin(WorkerPlugin):  # type: ignore[misc]
    """Gives a relay to every worker, also to those that join later."""

    def __init__(self, task: RelayTask, name: str) -> None:
        self.name = name
        self._task = task
        self._relay: Relay | None = None

    async def setup(self, worker: Worker) -> None:
        """Start the rank of a worker."""
        encrypted = _is_encrypted(worker.address)
        relay = self._relay = Relay(
            self._task,
            worker.address,
            partial(send, worker, self.name),
            Capabilities(elastic=True, survives_loss=True, encrypted=encrypted),
            credentials_of(worker.security, self._task.token),
            {name: float(value) for name, value in worker.state.total_resources.items()},
        )
        worker.handlers[self.name] = relay.handle
        await relay.start()

    async def teardown(self, worker: Worker) -> None:
        """End the rank of a worker."""
        worker.handlers.pop(self.name, None)
        if self._relay is not None:
            await self._relay.close("its Dask worker has ended it")


async def send(server: Server, service: str, address: str, **fields: Any) -> Mapping[str, Any]:
    """Call a service of the Dask process at an address; raises OSError if that fails."""
    found: Mapping[str, Any] = await getattr(server.rpc(address), service)(**fields)
    return found


def security_of(credentials: Credentials) -> Security:
    """Return the settings by which every process of a cluster shows one certificate and asks for its like."""
    roles = ("scheduler", "worker", "client")
    certificates = {f"tls_{role}_cert": credentials.certificate for role in roles}
    keys = {f"tls_{role}_key": credentials.key for role in roles}
    return Security(require_encryption=True, tls_ca_file=credentials.authority, **certificates, **keys)


def read_security() -> Security:
    """Return what Dask's settings say of certificates."""
    return Security()


def role_of(security: Security) -> str:
    """Return the role whose certificate a process shows to ranks: that of a worker where there is one."""
    return "worker" if security.get_tls_config_for_role("worker")["cert"] else "client"


def credentials_of(security: Security, token: bytes) -> Credentials:
    """Return the certificate that a process shows to others, as the settings of Dask name it."""
    tls = security.get_tls_config_for_role(role_of(security))
    return Credentials(token, _pem(tls["ca_file"]), _pem(tls["cert"]), _pem(tls["key"]))


def _pem(value: str | None) -> str:
    """Return what a setting of Dask holds, or names."""
    return value if value and "\n" in value else Path(value).read_text() if value else ""


@contextlib.contextmanager
def local_client(n_ranks: int, security: Security) -> Iterator[Client]:
    """Start workers on this machine, and yield a client of them; all end with this process, however it ends."""
    with (
        dask.config.set(SETTINGS),
        _without_main(),
        _launch_local(n_ranks, security) as cluster,
        _connect(cluster) as client,
    ):
        client.loop.asyncio_loop.set_exception_handler(_report_defect)
        yield client


def _connect(cluster: LocalCluster) -> Client:
    try:
        return Client(cluster, timeout=_CONNECT_SECONDS)
    except (OSError, TimeoutError) as error:
        raise _make_unstarted_error(error) from None


def _make_unstarted_error(error: Exception) -> ClusterError:
    return ClusterError(f"the ranks could not be started: {error}", retryable=True)


def _launch_local(n_ranks: int, security: Security) -> LocalCluster:
    """Start a scheduler and workers; a Ctrl-C meanwhile ends them as soon as they are there.

    Dask cannot end half a launch, so a thread launches them. Its threads and processes inherit that Ctrl-C passes by.
    """
    resource_tracker.ensure_running()  # a thread that starts it is interrupted from then on
    launch: Future[LocalCluster] = Future()
    ready = threading.Event()
    launch.add_done_callback(lambda _: ready.set())
    threading.Thread(target=_launch, args=(launch, n_ranks, security), name="tartan-launch", daemon=True).start()
    try:
        wait_for(ready)
    except KeyboardInterrupt:
        wait_for(ready)
        if launch.exception() is None:
            launch.result().close()
        raise
    try:
        return launch.result()
    except (OSError, RuntimeError, TimeoutError) as error:
        raise _make_unstarted_error(error) from None


def _launch(launch: Future[LocalCluster], n_ranks: int, security: Security) -> None:
    leave_interrupts_to_others()
    dashboard = "127.0.0.1:0"
    try:
        with dask.config.set(LAUNCH):
            cluster = LocalCluster(
                n_workers=n_ranks,
                threads_per_worker=1,
                processes=True,
                memory_limit=0,
                host="127.0.0.1",
                dashboard_address=dashboard,
                worker_dashboard_address=dashboard,
                scheduler_kwargs={"dashboard": False},  # where bokeh is installed, Dask would open one
                security=security,
                silence_logs=logging.CRITICAL,
                config=SETTINGS,  # of the workers, which would inherit those of the launch
            )
    except Exception as error:
        launch.set_exception(error)
    else:
        launch.set_result(cluster)


def _report_defect(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Report what no one has waited for, but for connections that ended with the cluster."""
    if not isinstance(context.get("exception"), CommClosedError):
        loop.default_exception_handler(context)


@contextlib.contextmanager
def _without_main() -> Iterator[None]:
    """Hide the program of this process from those that are started meanwhile, which would run it."""
    main = sys.modules["__main__"]
    found = {name: getattr(main, name) for name in ("__file__", "__spec__") if hasattr(main, name)}
    try:
        for name in found:
            setattr(main, name, None)
        yield
    finally:
        for name, value in found.items():
            setattr(main, name, value)


@contextlib.contextmanager
def remote_client(address: str, security: Security) -> Iterator[Client]:
    """Yield a client of a cluster that runs."""
    with dask.config.set(SETTINGS):
        try:
            client = Client(address, security=security, timeout=_CONNECT_SECONDS)
        except (OSError, TimeoutError) as error:
            raise ClusterError(f"the Dask scheduler at {address} cannot be reached: {error}") from None
        with client:
            client.loop.asyncio_loop.set_exception_handler(_report_defect)
            yield client


def _is_encrypted(address: str) -> bool:
    return address.startswith("tls://")


def _fulfil(reply: asyncio.Future[bytes], data: bytes) -> None:
    if not reply.done():
        reply.set_result(data)


def _require_same(what: str, theirs: object, ours: object) -> None:
    if theirs != ours:
        raise ClusterError(f"the rank has version {theirs} of {what}, the driver {ours}: install the same on both")
