"""Slots: ranks that are groups of threads inside a kernel. A process for each GPU loads and launches it."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tartan._native import CommArena
from tartan.base.checks import whole
from tartan.comm.state import LOST, stop_reason
from tartan.errors import ConfigError, ResourceError

#: The folder of ``tartan_comm.h``.
HEADERS = Path(__file__).parent / "include"
#: What a slot keeps between its calls, in memory of the GPU that begins as zeros.
#: By format of what kernels keep between calls.
STATE_BYTES = 2048
# By judgement: blocks of all slots must be resident at once, and an H100 has 132 multiprocessors. No benchmark: no GPU
# measured yet.
MOST_BLOCKS = 32


@dataclass(frozen=True)
class Kernel:
    """A kernel whose slots are ranks of a communicator.

    Attributes
    ----------
    source : str
        CUDA C++ that includes ``tartan_comm.h``.
    name : str
        A function that is ``extern "C" __global__ void`` and takes ``tartan::Slots`` first.
    args : tuple
        What it takes besides: arrays, which are copied to the GPU and not back, and NumPy scalars.
    threads : int
        Threads of a block.
    blocks_per_slot : int
        Blocks of a slot.
    """

    source: str
    name: str
    args: tuple[Any, ...] = ()
    threads: int = 128
    blocks_per_slot: int = 1

    def __post_init__(self) -> None:
        """Refuse what no kernel has."""
        for name in ("source", "name"):
            if not isinstance(getattr(self, name), str):
                raise ConfigError(f"{name} of a kernel is a text, not {getattr(self, name)!r} ({name})")
        if not isinstance(self.args, tuple | list):
            raise ConfigError(f"args of a kernel are a tuple, not {self.args!r} (args)")
        whole("threads", self.threads, 1, 1024)
        whole("blocks_per_slot", self.blocks_per_slot, 1, MOST_BLOCKS)


class LoadedKernel(Protocol):
    """A kernel on one GPU.

    Attributes
    ----------
    most_slots : int
        So many slots can be resident at once.
    """

    most_slots: int

    def launch(self, n_slots: int, arena: CommArena, local: int, rank: int) -> None:
        """Run it to its end. Slot 0 is this rank, at this place of the node whose memory is given.

        Raises
        ------
        ConfigError
            If the arguments are not what the kernel takes.
        RankLostError
            If the kernel fails.
        DeviceError
            If it cannot be launched.
        """
        ...


class SlotDevice(Protocol):
    """Where kernels of slots run.

    Attributes
    ----------
    pins_memory : bool
        Whether it keeps all memory of a node in place, which limits how much there can be.
    """

    @property
    def pins_memory(self) -> bool: ...

    def load(self, kernel: Kernel, gpu: int) -> LoadedKernel:
        """Compile a kernel for a GPU, by its number on the node.

        Raises
        ------
        ConfigError
            If it does not compile.
        DeviceError
            If the device cannot be used.
        """
        ...


@dataclass(frozen=True)
class SlotPlan:
    """The slots of every node.

    Attributes
    ----------
    kernel : Kernel
    device : SlotDevice
    gpus, slots : int
        GPUs of a node, and slots of a GPU.
    """

    kernel: Kernel
    device: SlotDevice
    gpus: int
    slots: int


def run_slots(plan: SlotPlan, gpu: int, arena: CommArena, local: int, rank: int) -> None:
    """Load the kernel on a GPU of this node and run its slots to their end; slot 0 is this rank.

    Raises
    ------
    ResourceError
        If so many slots cannot be resident at once.
    """
    loaded = plan.device.load(plan.kernel, gpu)
    if plan.slots > loaded.most_slots:
        raise ResourceError(
            f"{plan.slots} slots of {plan.kernel.blocks_per_slot} x {plan.kernel.threads} threads cannot be resident "
            f"at once on GPU {gpu}; at most {loaded.most_slots} can (slots)"
        )
    ended = _LaunchEnd()
    work = threading.Thread(target=_launch, args=(ended, loaded, plan.slots, arena, local, rank), daemon=True)
    work.start()
    try:
        work.join()
    except KeyboardInterrupt:
        arena.abort(LOST, f"rank {rank} was interrupted")
        work.join()
        raise
    if ended.error is not None:
        raise ended.error
    for slot in range(plan.slots):
        arena.end(local + slot)
    if arena.reason() is not None:
        raise stop_reason(arena)


@dataclass
class _LaunchEnd:
    """How a launch has ended."""

    error: BaseException | None = None


def _launch(ended: _LaunchEnd, loaded: LoadedKernel, n_slots: int, arena: CommArena, local: int, rank: int) -> None:
    try:
        loaded.launch(n_slots, arena, local, rank)
    except BaseException as error:
        ended.error = error
