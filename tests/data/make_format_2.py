"""Write format_2.tar.xz: run folders of every kind of the version that runs this script, with what it reads in them.

Usage: ``python tests/data/make_format_2.py``. Each folder is RUN/run; RUN/answers.json has for
each of its versions the names of the items, the failures and the kept pairs, as Tartan gave them then.
"""

from __future__ import annotations

import json
import tarfile
import tempfile
from pathlib import Path

import tartan
from spec.kinds import KINDS, LIVING
from spec.plain import answers_of

HERE = Path(__file__).resolve().parent


def main() -> None:
    """Make the runs and pack them."""
    with tempfile.TemporaryDirectory() as made:
        for name, make in (KINDS | LIVING).items():
            place = Path(made) / name.replace(", ", "-").replace(" ", "-")
            place.mkdir()
            run = make(place / "run")
            # Of top-k runs what would be among the best of fewer items is not kept.
            numbers = [version.number for version in run.versions] if name in LIVING and name != "grown top-k" else []
            found = {str(number): answers_of(tartan.open(place / "run", number)) for number in numbers}
            (place / "answers.json").write_text(json.dumps(found | {"newest": answers_of(run)}))
        with tarfile.open(HERE / "format_2.tar.xz", "w:xz") as archive:
            archive.add(made, ".")


if __name__ == "__main__":
    main()
