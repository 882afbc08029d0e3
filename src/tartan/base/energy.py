"""Joules that the processors of this machine take, from the RAPL counters that Linux shows in /sys/class/powercap.

Intel's and AMD's processors have the same folders: ``intel-rapl:0`` and so on, each a package with zones below it.
Counted are packages, and their memory (``dram``), which no package contains. Cores and graphics are parts of packages,
``psys`` holds all of them, and ``intel-rapl-mmio`` shows the same counters again: these are left out.

The counters are those of the machine: what else runs on it is in them. They begin again at 0 after some
``max_energy_range_uj``, minutes to hours, so a meter must be read more often than that.
"""

from __future__ import annotations

import re
from pathlib import Path

POWERCAP = Path("/sys/class/powercap")
# By format of the kernel's powercap class: intel-rapl:PACKAGE, and intel-rapl:PACKAGE:PART below it.
_ZONE = re.compile(r"intel-rapl:\d+(:\d+)?")


class EnergyMeter:
    """Joules since it was made.

    Parameters
    ----------
    root : Path
        The folder of zones.

    Attributes
    ----------
    problem : str
        Why nothing is measured; empty where all zones could be read each time.
    """

    def __init__(self, root: Path = POWERCAP) -> None:
        self.problem = ""
        self._joules = 0.0
        self._last: dict[Path, int] = {}
        self._ranges: dict[Path, int] = {}
        try:
            for zone in counted_zones(root):
                self._ranges[zone] = _read_number(zone / "max_energy_range_uj")
                self._last[zone] = _read_number(zone / "energy_uj")
        except (OSError, ValueError) as error:
            self.problem = _explain(error)
        if not self._last and not self.problem:
            self.problem = (
                f"this machine shows no RAPL counters in {root} (virtual machines and many containers do not)"
            )

    def joules(self) -> float | None:
        """Read the counters; return the joules of all zones so far, None if they are not known."""
        if self.problem:
            return None
        try:
            now = {zone: _read_number(zone / "energy_uj") for zone in self._last}
        except (OSError, ValueError) as error:
            self.problem = _explain(error)
            return None
        self._joules += 1e-6 * sum(microjoules_between(self._last[zone], now[zone], self._ranges[zone]) for zone in now)
        self._last = now
        return self._joules


def counted_zones(root: Path) -> list[Path]:
    """Return the zones of a powercap folder of which none is a part of another.

    Raises
    ------
    OSError
        If the name of a zone cannot be read.
    """
    if not root.is_dir():
        return []
    found = []
    for zone in sorted(root.iterdir()):
        matched = _ZONE.fullmatch(zone.name)
        if matched is None:
            continue
        name = (zone / "name").read_text().strip()
        if name == "dram" if matched[1] else name.startswith("package"):
            found.append(zone)
    return found


def microjoules_between(before: int, after: int, largest: int) -> int:
    """Return how far a counter went that begins again at 0 after ``largest``, once at most."""
    return after - before if after >= before else after + largest + 1 - before


def _read_number(path: Path) -> int:
    return int(path.read_text())


def _explain(error: Exception) -> str:
    if isinstance(error, PermissionError):
        return f"{error.filename} may not be read; as root: chmod -R a+r {POWERCAP}/intel-rapl:*/"
    return f"the RAPL counters cannot be read: {error}"
