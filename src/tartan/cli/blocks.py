"""``tartan blocks``: the applications of block tasks, arrays in, Zarr out."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tartan.base.format import format_bytes, format_duration, format_memory, pluralize
from tartan.base.machine import memory
from tartan.base.outputs import refuse_inside_run
from tartan.base.progress import ProgressLine
from tartan.cli.shared.options import devices, positive_int
from tartan.cli.shared.output import print_json, say
from tartan.cli.shared.outputs import PAGE, add_overwrite, require_no_file, require_outputs
from tartan.errors import ConfigError
from tartan.options import parse_bytes

if TYPE_CHECKING:
    from tartan.blocks import RunReport, Session, Space
    from tartan.blocks.unfinished import UnfinishedOutput


_APPLICATIONS = {
    "matmul": "matmul A B multiplies two matrices",
    "lu": "lu A factors a square matrix without pivoting",
    "convolve": "convolve IMAGE KERNEL... convolves an image, channels last, with filters of odd sides in sequence",
    "pagerank": "pagerank EDGES ranks pages by links, shape (n, 2): from page, to page",
}
_OPTIONS_OF_BYTES = ("application", "block", "boundary", "damping", "device")
"""Options on which the bytes of the result depend."""
_N_INPUTS = {"matmul": (2, 2), "lu": (1, 1), "convolve": (2, 1000), "pagerank": (1, 1)}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add = parser.add_argument
    add("application", metavar="APPLICATION", choices=[*_APPLICATIONS], help="; ".join(_APPLICATIONS.values()))
    add("inputs", metavar="ARRAY", nargs="+", help=".npy files or Zarr arrays; filters and links as .npy")
    add("-o", "--out", metavar="OUT", type=Path, required=True, help="Zarr array to write; one unfinished is resumed")
    add_overwrite(parser)
    add(
        "--block",
        metavar="N",
        type=positive_int,
        help="side of a block, in elements (1024, of matmul less where memory is short; of pagerank 65536)",
    )
    boundaries = ("zero", "reflect", "nearest", "clip")
    add("--boundary", choices=boundaries, default="reflect", help="of convolve: what lies outside the image (reflect)")
    add("--damping", type=float, default=0.85, help="of pagerank: share of rank that goes along links (0.85)")
    add("--on", metavar="WHERE", help="compute on several ranks: local:4")
    add("--workers", metavar="N", type=int, help="subtasks at a time on each rank (cores)")
    add("--host-cache", metavar="SIZE", help="memory of each rank for blocks (half of what is free)")
    add(
        "--device",
        type=devices,
        action="extend",
        metavar="NAME",
        help="cpu, cuda, cuda:1 or sim; with --on several, which ranks take in turn; default: cpu",
    )
    add("--device-cache", metavar="SIZE", help="memory of each device for blocks (70 %% of what is free)")
    places = ("source", "centralized", "row cyclic", "column cyclic", "random", "grid")
    add(
        "--report", metavar="PAGE.html", type=Path, help="write a page: what was moved, which rank computed which block"
    )
    add("--trace", metavar="TRACE.json", type=Path, help="write when which rank computed what, for Perfetto")
    add("--place", choices=places, default="source", help="where blocks of the input are at first (source)")


def execute(args: argparse.Namespace) -> int:
    """Run an application; return the exit status."""
    least, most = _N_INPUTS[args.application]
    if not least <= len(args.inputs) <= most:
        raise ConfigError(f"{pluralize(len(args.inputs), 'array')}: {_APPLICATIONS[args.application]}")
    _require_out(args)
    require_outputs(args, (args.report, PAGE), (args.trace, None))
    with _output(args) as output, _session(args) as session:
        _say_memory(session, args)
        run = {"matmul": _matmul, "lu": _lu, "convolve": _convolve, "pagerank": _pagerank}[args.application]
        found, report = run(session, args, output)
        begin = time.perf_counter()
        output.finish(session, found)
        report = replace(report, seconds=report.seconds + time.perf_counter() - begin)
        owners = session.owners(found)
    _report(args, report, output.n_there)
    if args.report is not None:
        from tartan.view.blocks_report import write_blocks_report

        write_blocks_report(args.report, f"{args.application} {' '.join(args.inputs)}", _figures(report), owners)
    return 0


def _say_memory(session: Session, args: argparse.Namespace) -> None:
    """Say what the application needs at most, before it begins; of several ranks it is not known."""
    from tartan.blocks.need import need_of_application

    if not args.json and args.on is None:
        need = need_of_application(session, args.application, args.inputs, args.block, args.workers)
        say(f"tartan: {format_memory(need.total_bytes, need.parts, memory().available_bytes)}")


def _require_out(args: argparse.Namespace) -> None:
    """Refuse what is at the place of the result, unless it is an array that may be replaced."""
    from tartan.blocks.zarr_output import require_free

    require_no_file(args.out, "the result is a Zarr array", f"name it {args.out.with_suffix('.zarr')}")
    refuse_inside_run(args.out)
    is_array = any((args.out / name).is_file() for name in ("zarr.json", ".zarray"))
    if args.overwrite and os.path.lexists(args.out) and not is_array:
        raise ConfigError(f"{args.out} is not a Zarr array, and is not replaced; choose another name", code="exists")
    require_free(args.out, overwrite=args.overwrite)


def _figures(report: RunReport) -> dict[str, str]:
    """Return the cards of the page."""
    bound = "not known" if report.bytes_bound is None else format_bytes(report.bytes_bound)
    return {
        "subtasks": f"{report.subtasks:,}",
        "seconds": f"{report.seconds:,.1f}",
        "ranks": f"{len(report.per_rank or {}):,}",
        "moved between ranks": format_bytes(report.bytes_moved),
        "least that had to move": bound,
        "ranges that were there": f"{report.hits / max(1, report.ranges):.0%}",
        "read from sources": format_bytes(report.bytes_read),
        "stolen subtasks": f"{report.steals:,}",
        "run again": f"{report.repeated:,}",
        **_device_figures(report),
    }


def _device_figures(report: RunReport) -> dict[str, str]:
    """Return the cards about devices, where there were any."""
    if not report.device_subtasks:
        return {}
    return {
        "subtasks on devices": f"{report.device_subtasks:,}",
        "uploaded": format_bytes(report.bytes_uploaded),
        "downloaded": format_bytes(report.bytes_downloaded),
        "ranges that were on the device": f"{report.device_hits / max(1, report.device_ranges):.0%}",
        "seconds that devices waited": f"{report.seconds_device_waited:,.1f}",
    }


@contextmanager
def _output(args: argparse.Namespace) -> Iterator[UnfinishedOutput]:
    """Open what the same command left, and say what of it is used; at the end say what is left."""
    from tartan.blocks.unfinished import UnfinishedOutput

    with UnfinishedOutput(args.out, partial(_identity, args), overwrite=args.overwrite) as output:
        if output.anew:
            say(f"begun anew: {output.folder} is not of this command: {output.anew}")
        elif output.kept:
            say(f"resumed: {output.kept} were there")
        try:
            yield output
        except BaseException:
            if output.kept:
                say(f"{output.folder} keeps {output.kept}; the same command goes on with them")
            raise


def _identity(args: argparse.Namespace) -> dict[str, Any]:
    """Return what the bytes of the result depend on; inputs by their stamps."""
    import numpy
    import zarr

    from tartan.base.machine import tartan_version
    from tartan.sources.arrays import folder_stamp
    from tartan.sources.files import stamp_of

    found: dict[str, Any] = {name: getattr(args, name) for name in _OPTIONS_OF_BYTES}
    found |= {"tartan": tartan_version(), "numpy": numpy.__version__, "zarr": zarr.__version__}
    for number, name in enumerate(args.inputs, 1):
        path = Path(name).resolve()
        found[f"input {number}"] = str(path)
        if path.exists():
            found[str(path)] = [folder_stamp(str(path))] if path.is_dir() else list(stamp_of(path.stat()))
    return found


@contextmanager
def _session(args: argparse.Namespace) -> Iterator[Session]:
    from tartan.blocks import Session

    caches = {
        name: None if size is None else parse_bytes(size, option=f"--{name.replace('_', '-')}")
        for name, size in (("host_cache", args.host_cache), ("device_cache", args.device_cache))
    }
    with ProgressLine(quiet=args.json) as line:

        def show(done: int, total: int) -> None:
            line.show(done, total, lambda state: f"{state.done:,} of {state.total:,} subtasks, {state.percent}")

        options: dict[str, Any] = {**caches, "workers": args.workers, "device": args.device, "trace": args.trace}
        with Session(args.on, **options, progress=show) as session:
            yield session


def _report(args: argparse.Namespace, report: RunReport, n_there: int) -> None:
    if args.json:
        print_json(
            {
                "out": str(args.out),
                "seconds": report.seconds,
                "subtasks": report.subtasks,
                "blocks_resumed": n_there,
                "bytes_moved": report.bytes_moved,
                "bytes_bound": report.bytes_bound,
                "bytes_read": report.bytes_read,
                "bytes_spilled": report.bytes_spilled,
                "bytes_restored": report.bytes_restored,
                "ranges": report.ranges,
                "hits": report.hits,
                "steals": report.steals,
                "ranks_lost": report.ranks_lost,
                "device_subtasks": report.device_subtasks,
                "bytes_uploaded": report.bytes_uploaded,
                "bytes_downloaded": report.bytes_downloaded,
                "device_ranges": report.device_ranges,
                "device_hits": report.device_hits,
                "seconds_device_waited": report.seconds_device_waited,
            }
        )
        return
    say(
        f"{args.out}: {pluralize(report.subtasks, 'subtask')} in {format_duration(report.seconds)}, "
        f"{format_bytes(report.bytes_moved)} moved between ranks{_share(report)}{_on_devices(report)}"
    )


def _share(report: RunReport) -> str:
    """Return what is said of the bound, where there is one."""
    if not report.bytes_bound:
        return ""
    return f", {report.bytes_moved / report.bytes_bound:.2f} of the least"


def _on_devices(report: RunReport) -> str:
    """Return what is said of devices, where there were any."""
    if not report.device_subtasks:
        return ""
    return (
        f"; {report.device_subtasks:,} subtasks on devices, {format_bytes(report.bytes_uploaded)} uploaded, "
        f"{format_bytes(report.bytes_downloaded)} downloaded, {format_duration(report.seconds_device_waited)} waited"
    )


def _matmul(session: Session, args: argparse.Namespace, output: UnfinishedOutput) -> tuple[Space, RunReport]:
    from tartan.blocks.applications.matmul import matmul

    return matmul(session, *args.inputs, block=args.block, place=args.place, output=output)[:2]


def _lu(session: Session, args: argparse.Namespace, output: UnfinishedOutput) -> tuple[Space, RunReport]:
    from tartan.blocks.applications.lu import lu

    return lu(session, args.inputs[0], block=args.block or 1024, place=args.place, output=output)


def _convolve(session: Session, args: argparse.Namespace, output: UnfinishedOutput) -> tuple[Space, RunReport]:
    from tartan.blocks.applications.convolve import convolve

    kernels = [_array(path) for path in args.inputs[1:]]
    options: dict[str, Any] = {"block": args.block or 1024, "boundary": args.boundary, "place": args.place}
    return convolve(session, args.inputs[0], kernels, **options, output=output)


def _pagerank(session: Session, args: argparse.Namespace, output: UnfinishedOutput) -> tuple[Space, RunReport]:
    from tartan.blocks.applications.pagerank import pagerank

    return pagerank(session, _array(args.inputs[0]), block=args.block or 65536, damping=args.damping, output=output)


def _array(path: str) -> Any:
    from tartan.base.npy_input import open_npy

    try:
        return open_npy(path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} is not an array that can be read: {error}") from None
