"""``pagerank`` of ``tartan.blocks.applications`` from Python; see also ``tartan blocks pagerank``."""

import numpy as np

from tartan.blocks import Session
from tartan.blocks.applications.pagerank import pagerank

links = np.random.default_rng(0).integers(0, 1000, (20_000, 2))
with Session() as session:
    ranks, report = pagerank(session, links, block=256)
    print(f"{report.subtasks} subtasks, best page {int(np.argmax(ranks.array()))}")
