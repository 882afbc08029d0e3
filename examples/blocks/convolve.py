"""``convolve`` of ``tartan.blocks.applications`` from Python; see also ``tartan blocks convolve``."""

import argparse

import numpy as np

from tartan.blocks import Session
from tartan.blocks.applications.convolve import convolve

image = np.random.default_rng(0).random((400, 500, 3), dtype="f4")
edges = np.array([[0, 1, 0], [1, -4, 1], [0, 1, 0]], "f4")
parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1 or sim")
with Session(device=parser.parse_args().device) as session:
    found, report = convolve(session, image, [np.full((5, 5), 1 / 25, "f4"), edges], block=128, boundary="nearest")
    print(f"{report.subtasks} subtasks, largest edge {found.array().max():.3f}")
