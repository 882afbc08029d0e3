"""The documentation as a site: `make site` builds it of the documents of the checkout, and warnings are errors."""

from __future__ import annotations

import tomllib
import warnings
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

project = "Tartan"
release = PROJECT["version"]
author = "The Tartan developers"
html_title = f"Tartan {release}"
html_theme = "furo"
extensions = ["myst_parser", "sphinx.ext.autodoc", "numpydoc"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
root_doc = "docs/site/index"
include_patterns = ["*.md", "docs/**", "src/tartan/**/README.md", "crates/*/README.md"]
myst_heading_anchors = 3
autodoc_typehints = "none"
autodoc_default_options = {
    "members": True,
    # What Python gives every error, and scikit-learn every estimator.
    "exclude-members": "add_note, with_traceback, set_fit_request, set_partial_fit_request, set_predict_request, "
    "set_score_request, set_transform_request",
}
suppress_warnings = ["ref.python"]  # several classes may have an attribute of one name
numpydoc_show_class_members = False
# A section of this kind would be left out of the page.
warnings.filterwarnings("error", message="Unknown section")
# Code blocks of two kinds: a command line, and a file of values.
highlight_language = "none"
