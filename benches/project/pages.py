"""How large the reports of large runs are, and how soon a headless Chromium shows them and answers.

Two runs of rows in groups of twenty, each with a map: all pairs of ``items``, and the ``k`` nearest of each of ``kept``
items. A page is opened from its file ``rounds`` times in one browser. *Loaded* is the end of its load event;
*answered* the first frame after an enlarged matrix and, of kept pairs, after a search of its groups was asked for.
Both are counted from the start of the navigation. Seconds of processors are those of the browser and its processes.

Words: ``items=10000``, ``kept=20000``, ``k=5``, ``rounds=5``. It needs Chromium.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

import tartan
from benches.shared._measure import not_held, options_of, print_table
from support.chromium import BROWSER, Browser
from tartan.apps.vectors.app import Vectors
from tartan.errors import ConfigError
from tartan.view.report import MAX_BYTES, write_report

#: Seconds from the start of the navigation until the page answers.
BAR = 2.0
_GROUP = 20
_ASK = """new Promise((answer) => {
  document.getElementById("closer").click();
  const find = document.getElementById("find-group");
  if (find) { find.value = "group 7"; find.dispatchEvent(new Event("input")); }
  requestAnimationFrame(() => setTimeout(() => answer(performance.now() / 1000), 0));
})"""


class Opening(NamedTuple):
    """Seconds of one opening of a page."""

    loaded: float
    answered: float
    processor: float


def write_page(folder: Path, name: str, n: int, k: int) -> Path:
    """Compare n rows, all pairs or (k > 0) the nearest of each, and write the report."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(max(1, n // _GROUP), 16))
    rows = centres[np.arange(n) % len(centres)] + 0.3 * rng.normal(size=(n, 16))
    np.save(folder / f"{name}.npy", rows.astype(np.float32))
    rule = {"reduce": {"kind": "top-k", "k": k, "largest": False}} if k else {}
    run = tartan.allpairs(Vectors(), str(folder / f"{name}.npy"), folder / f"{name}.tartan", quiet=True, **rule)
    return write_report(run, folder / f"{name}.html", points=rows[:, :3])


def open_page(browser: Browser, page: Path) -> Opening:
    """Open a page, ask it for something, and wait for the frame that shows it."""
    browser.leave()
    before = browser.processor_seconds()
    browser.open(page.as_uri())
    loaded = float(browser.run("performance.getEntriesByType('navigation')[0].loadEventEnd")) / 1000
    answered = float(browser.run(_ASK))
    return Opening(loaded, answered, browser.processor_seconds() - before)


def main(words: Sequence[str] = ()) -> int:
    """Print the table; return 1 where the bar is not held."""
    options = options_of(words, items=10_000, kept=20_000, k=5, rounds=5)
    if BROWSER is None:
        raise ConfigError("pages needs Chromium: chromium, chromium-browser or google-chrome")
    rows, missed = [], []
    with tempfile.TemporaryDirectory() as made, Browser(Path(made) / "profile") as browser:
        folder = Path(made)
        for name, n, k in (("all pairs", options.items, 0), ("kept pairs", options.kept, options.k)):
            page = write_page(folder, name.replace(" ", "-"), n, k)
            size, found = page.stat().st_size, [open_page(browser, page) for _ in range(options.rounds)]
            best = Opening(*map(min, zip(*found, strict=True)))
            median = statistics.median(opening.answered for opening in found)
            rows.append((f"{name} of {n:,} items", f"{size / 1e6:.2f}", *best, median))
            if size > MAX_BYTES or best.answered > BAR:
                missed.append(f"{name}: {size / 1e6:.2f} MB, answers after {best.answered:.2f} s")
    head = ("report", "MB", "loaded [s]", "answered [s]", "processor [s]", "median answer [s]")
    print_table(f"reports in Chromium, the best of {options.rounds} openings", rows, head)
    return not_held(missed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
