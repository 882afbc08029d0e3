"""Small pieces of HTML. Every text that enters a page goes through here and is escaped here."""

from __future__ import annotations

import base64
import unicodedata
from collections.abc import Iterable, Sequence
from html import escape
from typing import NewType

__all__ = ["Html", "clipped", "data_uri", "facts", "joined", "printable", "table", "tag", "text"]

Html = NewType("Html", str)
"""Text that is safe to put into a page."""


def text(value: object) -> Html:
    """Escape anything for use between tags or inside a quoted attribute."""
    return Html(escape(str(value), quote=True))


def clipped(value: object, limit: int = 160) -> Html:
    """Escape a text of a user, shortened in its middle, with control characters made visible."""
    shown = printable(str(value))
    if len(shown) > limit:
        shown = shown[: limit // 2] + " … " + shown[-limit // 2 :]
    return text(shown)


def printable(value: str) -> str:
    """Return a text with control characters made visible; blanks of every width stay."""
    return "".join(c if c.isprintable() or unicodedata.category(c) == "Zs" else "\ufffd" for c in value)


def tag(name: str, *content: Html, **attributes: str) -> Html:
    """Wrap content in a tag; attribute ``class_`` is written as class, ``aria_label`` as aria-label."""
    pairs = [f' {key.rstrip("_").replace("_", "-")}="{text(value)}"' for key, value in attributes.items()]
    return Html(f"<{name}{''.join(pairs)}>{''.join(content)}</{name}>")


def joined(parts: Iterable[Html], between: str = "\n") -> Html:
    """Return the parts one after another, with text between them."""
    return Html(text(between).join(parts))


def facts(pairs: Sequence[tuple[str, Html]]) -> Html:
    """Write names with their values as a description list."""
    rows = [Html(f"<dt>{text(name)}</dt><dd>{value}</dd>") for name, value in pairs]
    return tag("dl", *rows, class_="facts")


def table(
    caption: str, heads: Sequence[tuple[str, str]], rows: Iterable[Sequence[Html]], *, row_heads: bool = True
) -> Html:
    """Write a table; ``heads`` holds (text, class) of each column; the first cell of a row is its head."""
    classes = [f' class="{text(kind)}"' if kind else "" for _, kind in heads]
    head = "".join(f'<th scope="col"{kind}>{text(name)}</th>' for (name, _), kind in zip(heads, classes))
    body = "\n".join(_row(row, classes, row_heads) for row in rows)
    return Html(
        f'<div class="wide"><table><caption>{text(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def data_uri(data: bytes, kind: str) -> str:
    """Return bytes as a data URI of the given media type."""
    return f"data:{kind};base64,{base64.b64encode(data).decode('ascii')}"


def _row(cells: Sequence[Html], classes: Sequence[str], row_heads: bool) -> str:
    first = '<th scope="row"' if row_heads else "<td"
    close = "</th>" if row_heads else "</td>"
    parts = [f"{first}{classes[0]}>{cells[0]}{close}"]
    parts += [f"<td{kind}>{cell}</td>" for cell, kind in zip(cells[1:], classes[1:])]
    return f"<tr>{''.join(parts)}</tr>"
