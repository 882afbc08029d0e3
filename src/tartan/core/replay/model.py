"""The performance model of the Rocket paper, equations 1 to 5.

Heldens et al., "Rocket: Efficient and Scalable All-Pairs Computations on Heterogeneous Platforms", 2020, section 6.1.
All times in seconds; R is the load factor.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StageTimes:
    """Mean times: parse and preprocess of one item, compare and postprocess of one pair."""

    parse: float = 0.0
    preprocess: float = 0.0
    compare: float = 0.0
    postprocess: float = 0.0


def device_seconds(n_items: int, n_pairs: int, load_factor: float, times: StageTimes) -> float:
    """Equation 1: time of the device."""
    return load_factor * n_items * times.preprocess + n_pairs * times.compare


def host_seconds(n_items: int, n_pairs: int, load_factor: float, times: StageTimes) -> float:
    """Equation 2: time of the CPU, were it one worker."""
    return load_factor * n_items * times.parse + n_pairs * times.postprocess


def storage_seconds(n_items: int, load_factor: float, file_bytes: float, bytes_per_second: float) -> float:
    """Equation 3: time of storage."""
    return load_factor * n_items * file_bytes / bytes_per_second


def compute_model_seconds(
    n_items: int,
    n_pairs: int,
    load_factor: float,
    times: StageTimes,
    *,
    workers: int = 1,
    speed: float = 1.0,
    file_bytes: float = 0.0,
    storage_bytes_per_second: float = float("inf"),
) -> float:
    """Return the time of a run whose stages overlap perfectly: the largest of equations 1 to 3.

    Parameters
    ----------
    workers : int
        CPU workers that share equation 2.
    speed : float
        Sum of the relative speeds of the devices that share equation 1.
    """
    return max(
        device_seconds(n_items, n_pairs, load_factor, times) / speed,
        host_seconds(n_items, n_pairs, load_factor, times) / workers,
        storage_seconds(n_items, load_factor, file_bytes, storage_bytes_per_second),
    )


def system_efficiency(
    n_items: int, n_pairs: int, times: StageTimes, measured_seconds: float, speed: float = 1.0
) -> float:
    """Equations 4 and 5: time with unlimited memory (R = 1) over measured time."""
    if measured_seconds <= 0:
        return 0.0
    return device_seconds(n_items, n_pairs, 1.0, times) / speed / measured_seconds
