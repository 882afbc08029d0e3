"""Scenes for simulated photos, drawn at random: light before it meets a camera.

Scenes are light in [0, 1], float32 (h, w, 3), linear. Their textures are what hides the pattern of a sensor: most of a
photo is smooth, some of it is not, and how much of it is not differs from scene to scene.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

# Measured on 54 photos of four Nikon D70 and D70s (docs/forensics-photos.md): chosen so that photos agree with others
# of their camera as these do. Half of a photo is as smooth as noise lets it be, a tenth is ten times as rough.
_ROUGH_SHARE = (0.3, 1.0)
# Measured on the same, as above.
_ROUGHNESS = (0.12, 1.6)
# Measured on the same, as above.
_ROUGH_SLOPE = (0.7, 1.1)
# Measured on the same: means of 37 to 124 of 255.
_EXPOSURE = (0.06, 1.0)
# Measured on the same, as above.
_FLAT_LIGHT = (0.17, 0.3)


def draw_scene(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """Draw one scene: light from 0, float32 (h, w, 3); what is above 1 is more than a sensor can hold."""
    kinds: tuple[Callable[..., np.ndarray], ...] = (_landscape, _draw_town, _table, _clouds)
    scene = kinds[int(rng.integers(len(kinds)))](rng, height, width)
    _roughen(rng, scene)
    scene *= np.float32(np.exp(rng.uniform(*np.log(_EXPOSURE))))
    np.maximum(scene, np.float32(0.003), out=scene)
    return scene


def draw_flat(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """Draw a wall or an overcast sky out of focus: light of one colour that changes slowly; as ``draw_scene``."""
    y, x = grid(height, width)
    slope = rng.uniform(-0.08, 0.08, 2).astype(np.float32)
    light = 1 + slope[0] * y + slope[1] * x
    flat: np.ndarray = light[..., None] * _colour(*(rng.uniform(*_FLAT_LIGHT) * rng.uniform(0.9, 1.1, 3)))
    return flat


def _roughen(rng: np.random.Generator, scene: np.ndarray) -> None:
    """Give a part of a scene a texture (leaves, grass, cloth), in place."""
    height, width = scene.shape[:2]
    low, high = np.log(_ROUGHNESS)
    strength, share = np.exp(rng.uniform(low, high)), rng.uniform(*_ROUGH_SHARE)
    where = _draw_places(rng, height, width, share)
    where *= _fractal(rng, height, width, rng.uniform(*_ROUGH_SLOPE))
    where *= np.float32(strength)
    where += 1
    np.clip(where, 0.15, 3, out=where)
    scene *= where[..., None]


def _draw_places(rng: np.random.Generator, height: int, width: int, share: float) -> np.ndarray:
    """Draw areas with soft edges, 1 in about ``share`` of a photo and 0 beside them: float32 (h, w)."""
    from PIL import Image

    coarse = _fractal(rng, max(height // 16, 2), max(width // 16, 2), 1.6)
    soft = np.clip((coarse - np.quantile(coarse, 1 - share)) * 4, 0, 1).astype(np.float32)
    return np.array(Image.fromarray(soft).resize((width, height), Image.Resampling.BILINEAR))


def _landscape(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """Sky with a sun above ranges of hills, the nearer the darker."""
    scene = _sky(rng, height, width)
    y, x = grid(height, width)
    sun_x, sun_y = rng.uniform(-0.8, 0.8), rng.uniform(-0.9, -0.3)
    distance = (x - np.float32(sun_x)) ** 2 + (y - np.float32(sun_y)) ** 2
    scene += (0.5 * np.exp(-distance * np.float32(rng.uniform(8, 40))))[..., None] * _colour(1, 0.9, 0.7)
    texture = _fractal(rng, height, width, 1.2)
    n_ranges = int(rng.integers(2, 5))
    for k in range(n_ranges):
        level = -0.1 + 0.8 * (k + rng.uniform(0, 0.5)) / n_ranges
        ridge = np.float32(level) + np.float32(0.25 / (k + 1)) * _fractal(rng, 1, width, 1.6)[0]
        shade = (0.45 - 0.3 * k / n_ranges) * (1 + np.float32(0.12 * (k + 1)) * texture)
        colour = _colour(*rng.uniform((0.5, 0.7, 0.3), (0.9, 1.0, 0.8)))
        _paint(scene, y > ridge, shade[..., None] * colour)
    return scene


def _draw_town(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """Houses with lit and dark windows before a sky."""
    scene = _sky(rng, height, width)
    plaster = 1 + np.float32(0.06) * _fractal(rng, height, width, 0.8)
    for _ in range(int(rng.integers(6, 14))):
        house_width = int(width * rng.uniform(0.08, 0.25)) + 4
        left = int(rng.integers(-house_width // 2, width - house_width // 2))
        top = int(height * rng.uniform(0.25, 0.8))
        where = np.s_[top:, max(left, 0) : left + house_width]
        scene[where] = plaster[where][..., None] * _colour(*rng.uniform(0.15, 0.6, 3))
        _windows(rng, scene[where])
    return scene


def _windows(rng: np.random.Generator, wall: np.ndarray) -> None:
    step = int(rng.integers(14, 30))
    for y in range(step // 2, wall.shape[0] - step, step):
        for x in range(step // 3, wall.shape[1] - step // 2, step):
            lit = rng.random() < 0.4
            wall[y : y + step // 2, x : x + step // 2] = _colour(0.9, 0.8, 0.5) if lit else _colour(0.06, 0.07, 0.1)


def _table(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """Balls with highlights on a grained table before a wall."""
    y, x = grid(height, width)
    edge = np.float32(rng.uniform(-0.5, 0.0))
    wall = np.float32(rng.uniform(0.4, 0.7)) * (1 - np.float32(0.25) * (x + y) / 2)
    scene: np.ndarray = wall[..., None] * _colour(*rng.uniform(0.6, 1.0, 3))
    grain = 1 + np.float32(0.15) * np.sin(40 * y + 3 * _fractal(rng, height, width, 1.4))
    _paint(scene, y > edge, (np.float32(0.35) * grain)[..., None] * _colour(0.9, 0.65, 0.4))
    for _ in range(int(rng.integers(3, 9))):
        radius = np.float32(rng.uniform(0.08, 0.3))
        dx = (x - np.float32(rng.uniform(-0.9, 0.9))) / radius
        dy = (y - np.float32(rng.uniform(edge, 0.8))) / radius
        depth = np.sqrt(np.maximum(1 - dx * dx - dy * dy, 0))
        lit = np.clip((depth * 2 - dx - dy) / np.float32(2.45), 0, 1)
        colour = _colour(*rng.uniform(0.1, 0.9, 3))
        ball = (0.1 + 0.7 * lit)[..., None] * colour + (np.float32(0.5) * lit**40)[..., None]
        _paint(scene, depth > 0, ball)
    return scene


def _clouds(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """Clouds in the sky, no ground."""
    scene = _sky(rng, height, width)
    cover = np.clip(_fractal(rng, height, width, 1.7) * 0.5 + np.float32(rng.uniform(0.1, 0.5)), 0, 1)[..., None]
    scene += cover * (np.float32(rng.uniform(0.7, 0.9)) - scene)
    return scene


def _sky(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """A gradient from zenith to horizon."""
    share = np.linspace(0, 1, height, dtype=np.float32)[:, None, None]
    zenith = _colour(*rng.uniform((0.1, 0.2, 0.45), (0.3, 0.45, 0.8)))
    horizon = _colour(*rng.uniform((0.5, 0.5, 0.5), (0.85, 0.75, 0.8)))
    return np.repeat(zenith + share * (horizon - zenith), width, axis=1)


def _fractal(rng: np.random.Generator, height: int, width: int, slope: float) -> np.ndarray:
    """Noise whose amplitude falls with frequency to the power of ``slope``; unit variance."""
    from scipy import fft

    spectrum = fft.rfft2(rng.standard_normal((height, width), dtype=np.float32), overwrite_x=True)
    fy, fx = np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None, :]
    frequency = np.sqrt(fx * fx + fy * fy).astype(np.float32)
    frequency[0, 0] = np.inf
    spectrum /= frequency ** np.float32(slope)
    noise = np.asarray(fft.irfft2(spectrum, s=(height, width), overwrite_x=True), dtype=np.float32)
    return noise / max(float(noise.std()), 1e-6)


def _paint(scene: np.ndarray, where: np.ndarray, colours: np.ndarray) -> None:
    np.copyto(scene, colours, where=where[..., None])


def grid(height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns from -1 to 1, (h, 1) and (1, w)."""
    rows, columns = (np.linspace(-1, 1, side, dtype=np.float32) for side in (height, width))
    return rows[:, None], columns[None, :]


def _colour(red: float, green: float, blue: float) -> np.ndarray:
    return np.array([red, green, blue], np.float32)
