"""What block tasks must at least move between ranks."""

from __future__ import annotations

from math import sqrt


def product_bound(shape: tuple[int, int], inner: int, item_bytes: int, n_ranks: int, held_bytes: int) -> int:
    """Return the bytes that ranks must at least receive for a matrix product.

    Parameters
    ----------
    shape : tuple of int
        Of the product.
    inner : int
        Length of its sums.
    item_bytes : int
        Of an element of the operands.
    n_ranks : int
        With equal shares of the product; each element is computed where all its inputs come together.
    held_bytes : int
        Of both operands, on all ranks together before.

    Notes
    -----
    A rank with t elements of the product touches r rows and c columns with r c >= t, so it needs at least ``inner *
    (r + c)`` elements.

    Examples
    --------
    >>> product_bound((16, 16), 16, 1, 4, 512)
    512
    """
    rows, columns = shape
    share = rows * columns / n_ranks
    height = min(max(sqrt(share), share / columns), rows)
    needed = inner * item_bytes * (height + share / height)
    return max(0, round(n_ranks * needed - held_bytes))
