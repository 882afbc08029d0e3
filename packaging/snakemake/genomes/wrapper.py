"""Snakemake wrapper for tartan: compare genomes and group them into species."""

# ruff: noqa: F821 - Snakemake defines the name snakemake

__author__ = "The Tartan developers"
__copyright__ = "Copyright 2026, The Tartan developers"
__license__ = "Apache-2.0"

import os
import tempfile
from pathlib import Path
from shlex import quote

from snakemake.shell import shell

log = snakemake.log_fmt_shell(stdout=True, stderr=True)
params, output = snakemake.params, snakemake.output
genomes = snakemake.input.genomes
quality = snakemake.input.get("quality")
representative = params.get("representative")

if quality and not representative:
    raise ValueError("input.quality needs params.representative: the name of a column of that table")
if not any(output.get(name) for name in ("run", "species", "tree", "report", "matrix")):
    raise ValueError("name at least one output: run, species, tree, report or matrix")

with tempfile.TemporaryDirectory() as folder:
    # A list of names has no limit of length, which a command line has.
    names = Path(folder, "genomes.txt")
    paths = [genomes] if isinstance(genomes, str) else genomes
    names.write_text("".join(f"{os.path.abspath(path)}\n" for path in paths))  # noqa: PTH100
    run = quote(str(output.get("run") or Path(folder, "genomes.tartan")))

    commands = [
        f"tartan run genomes {quote(f'@{names}')} -o {run} --workers {snakemake.threads}"
        f" --set k={params.get('k', 31)} scaled={params.get('scaled', 1000)} {params.get('extra', '')}"
    ]
    if output.get("species"):
        cluster = f"tartan cluster {run} --cut {params.get('cut', 0.95)} --method {params.get('method', 'average')}"
        if representative:
            way = f"{quality}:{representative}" if quality else representative
            cluster += f" --representative {quote(way)}"
        commands.append(f"{cluster} -o {quote(output.species)} {params.get('cluster_extra', '')}")
    if output.get("tree"):
        commands.append(f"tartan tree {run} -o {quote(output.tree)}")
    if output.get("report"):
        commands.append(f"tartan report {run} -o {quote(output.report)}")
    if output.get("matrix"):
        commands.append(f"tartan export {run} {quote(output.matrix)}")

    together = " && ".join(commands)
    shell("({together}) {log}")
