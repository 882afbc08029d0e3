"""A run in a few words, for notebooks and prompts."""

from __future__ import annotations

from tartan.core.ledger import DONE
from tartan.store.folder import RunFolder


def described(folder: RunFolder) -> dict[str, str]:
    """Return what a run is and how far it is, by name."""
    manifest, total = folder.manifest, folder.pairs.n_pairs
    done = int(folder.counts()[DONE])
    share = f" ({100 * done / total:.1f} %)" if total and done < total else ""
    facts = {
        "application": str(manifest.application.get("name")),
        "items": f"{manifest.n_items:,}",
        "pairs": f"{done:,} of {total:,}{share}",
        "outputs": ", ".join(f"{name} {dtype}" for name, dtype in manifest.outputs.items()),
    }
    if manifest.reduce is not None:
        facts["keeps"] = folder.kept
    return facts
