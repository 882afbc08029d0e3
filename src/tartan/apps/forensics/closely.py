"""A closer look at a photo, for tests against groups: slower than what all pairs are compared by, and clearer.

Textures and dark places, where a sensor's pattern drowns, count less, as the best detector asks for; traces of JPEG's
blocks, which photos of all cameras have, are left out.
"""

from __future__ import annotations

import numpy as np

from tartan.apps.forensics.ends import find_ends
from tartan.apps.forensics.prnu import flatten, leave_out_grid, pack_spectrum, remove_means, transform, whiten
from tartan.apps.forensics.residuals import measure_texture, read_residual


def look_closely(grey: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a photo's pattern as it is tested against the sum of others, and as it is added to such a sum.

    Parameters
    ----------
    grey : uint16 array (h, w)
        In units of 1/257.

    Returns
    -------
    tested, added : float32 arrays
        Spectra as ``pack_spectrum`` has them. The first is flat, so that by chance its product with anything is normal;
        its length says how clearly such a photo can show a pattern. The second is of length 1; frequencies count less
        in it where noise is strong.

    Notes
    -----
    A residual W is light I times the pattern K, beside noise of variance V: the weight I / V makes of W the best
    detector of K. Measured on 16 simulated natural photos of 1.5 megapixels against sums of ten flat ones: T is 8 to 41
    % above that of what pairs are compared by. The flat spectrum makes 1 to 9 % of it; where both are flat, it is lost.
    """
    photo = read_residual(grey, find_ends(grey))
    width = grey.shape[1]
    power = measure_texture(photo)
    weights = np.divide(photo.light, power, out=np.zeros_like(power), where=photo.usable & (power > 0))
    weighed: np.ndarray = photo.noise * weights
    energy = remove_means(weighed, np)
    length = np.float32(np.sqrt(energy))
    added = _pack(whiten(weighed, energy, np), width)
    return _pack(flatten(transform(weighed, np)), width) * length, added


def _pack(half: np.ndarray, width: int) -> np.ndarray:
    leave_out_grid(half, width)
    packed: np.ndarray = pack_spectrum(half, width, np)
    return packed
