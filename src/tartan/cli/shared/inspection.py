"""Opening items of a run to look at them, for the commands that do so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tartan.errors import TartanError

if TYPE_CHECKING:
    from tartan.run.inspection import Inspector
    from tartan.store.folder import RunFolder


def inspector_of(folder: RunFolder, *, trust: bool) -> Inspector:
    """Return what opens items of a run; without consent it says why it does not."""
    from tartan import apps
    from tartan.run.inspection import Inspector
    from tartan.run.trust import require_consent

    try:
        require_consent(folder, "showing its items opens the files that it names", trust=trust)
    except TartanError as error:
        return Inspector(folder, apps, str(error))
    return Inspector(folder, apps)
