"""``matmul`` of ``tartan.blocks.applications`` from Python; see also ``tartan blocks matmul``."""

import argparse

import numpy as np

from tartan.blocks import Session
from tartan.blocks.applications.matmul import matmul

rng = np.random.default_rng(0)
a, b = rng.standard_normal((600, 500)), rng.standard_normal((500, 700))
parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1 or sim")
with Session(device=parser.parse_args().device) as session:
    c, report, _ = matmul(session, a, b, block=256)
    print(f"{report.subtasks} subtasks, error {np.abs(c.array() - a @ b).max():.1e}")
