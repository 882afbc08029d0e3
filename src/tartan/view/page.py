"""Fill the templates of pages, in ``pages/``; every text is escaped unless a template calls it ``safe``."""

from __future__ import annotations

import base64
import functools
import hashlib
import io
import json
import re
import unicodedata
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup
    from PIL.Image import Image


def render(template: str, **values: Any) -> str:
    """Fill a template; a name that it uses and that is not given is an error."""
    return _make_environment().get_template(template).render(values)


@functools.cache
def _make_environment() -> Environment:
    from jinja2 import Environment, FunctionLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FunctionLoader(resource),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["clipped"] = clip_text
    environment.filters["coded"] = mark_code
    environment.filters["whole"] = lambda value: printable(str(value))
    environment.globals["resource"] = lambda name: Markup(resource(name))
    return environment


def mark_code(text: object) -> Markup:
    """Return a text for a page, escaped, with what stands between backquotes as code."""
    from markupsafe import Markup, escape

    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def resource(name: str) -> str:
    """Return the text of a file in ``pages/``."""
    return files("tartan.view").joinpath("pages", name).read_text(encoding="utf-8")


def hash_script(script: str) -> str:
    """Return the hash by which the content policy of a page allows its own script, and no other."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def pack_json(values: Any) -> str:
    """Return values as JSON that can stand in a script element: with no "<" in it nothing ends the element."""
    return json.dumps(values, separators=(",", ":")).replace("<", "\\u003c")


def clip_text(value: object, limit: int = 160) -> str:
    """Return a text of a user, shortened in its middle, with control characters made visible."""
    shown = printable(str(value))
    if len(shown) > limit:
        shown = shown[: limit // 2] + " … " + shown[-limit // 2 :]
    return shown


def printable(value: str) -> str:
    """Return a text with control characters made visible; blanks of every width stay."""
    return "".join(c if c.isprintable() or unicodedata.category(c) == "Zs" else "\ufffd" for c in value)


def show_on_one_line(name: str, limit: int) -> str:
    """Return a name on one line; a long one loses its middle, because names often differ at their ends."""
    flat = printable(" ".join(name.split()))
    return flat if len(flat) <= limit else f"{flat[: limit // 2]}…{flat[1 - limit // 2 :]}"


def png_uri(image: Image) -> str:
    """Return a picture as a data URI."""
    written = io.BytesIO()
    image.save(written, format="PNG", optimize=True)
    return data_uri(written.getvalue(), "image/png")


def data_uri(data: bytes, kind: str) -> str:
    """Return bytes as a data URI of the given media type."""
    return f"data:{kind};base64,{base64.b64encode(data).decode('ascii')}"
