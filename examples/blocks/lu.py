"""``lu`` of ``tartan.blocks.applications`` from Python; see also ``tartan blocks lu``."""

import argparse

import numpy as np

from tartan.blocks import Session
from tartan.blocks.applications.lu import lu

n = 600
a = np.random.default_rng(0).uniform(-1, 1, (n, n)) + n * np.eye(n)
parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1 or sim")
with Session(device=parser.parse_args().device) as session:
    factors, report = lu(session, a, block=128)
    found = factors.array()
    error = np.abs((np.tril(found, -1) + np.eye(n)) @ np.triu(found) - a).max()
    print(f"{report.subtasks} subtasks, error {error:.1e}")
