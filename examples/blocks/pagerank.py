"""``pagerank`` of ``tartan.blocks.applications`` from Python; see also ``tartan blocks pagerank``."""

import argparse

import numpy as np

from tartan.blocks import Session
from tartan.blocks.applications.pagerank import pagerank

links = np.random.default_rng(0).integers(0, 1000, (20_000, 2))
parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1 or sim")
with Session(device=parser.parse_args().device) as session:
    ranks, report = pagerank(session, links, block=256)
    print(f"{report.subtasks} subtasks, best page {int(np.argmax(ranks.array()))}")
