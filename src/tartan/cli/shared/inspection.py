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
    from tartan.workers.shipping import names_builtin

    about = folder.manifest.application
    runs_nothing = about["kind"] == "object" or names_builtin(str(about["source"]))
    code = "" if runs_nothing else f", and runs {about['source']}"
    try:
        require_consent(folder, f"showing its items opens the files that it names{code}", trust=trust)
    except TartanError as error:
        return Inspector(folder, apps, str(error))
    return Inspector(folder, apps)
