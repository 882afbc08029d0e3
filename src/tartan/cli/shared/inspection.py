"""Opening items of a run to look at them, for the commands that do so."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from tartan.cli.shared.wording import in_options
from tartan.errors import TartanError

if TYPE_CHECKING:
    from tartan.run.inspection import Inspector
    from tartan.store.folder import RunFolder


def inspector_of(folder: RunFolder, args: argparse.Namespace) -> Inspector:
    """Return what opens items of a run; without consent it says why it does not."""
    from tartan import apps
    from tartan.run.inspection import Inspector
    from tartan.run.trust import require_consent
    from tartan.workers.shipping import names_builtin

    about = folder.manifest.application
    runs_nothing = about["kind"] == "object" or names_builtin(str(about["source"]))
    code = "" if runs_nothing else f", and runs {about['source']}"
    try:
        require_consent(folder, f"showing its items opens the files that it names{code}", trust=args.trust)
    except TartanError as error:
        return Inspector(folder, apps, in_options(str(error), args.parser))
    return Inspector(folder, apps)
