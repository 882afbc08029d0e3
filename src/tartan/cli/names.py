"""``tartan names``: put the names of a table into a tree."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from tartan.cli.shared.output import print_json, put, say
from tartan.cli.shared.outputs import NEWICK, add_overwrite, require_outputs
from tartan.cli.shared.tables import write_text
from tartan.cli.shared.trees import read_tree
from tartan.errors import ConfigError


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add = parser.add_argument
    add(
        "table",
        metavar="TABLE",
        help="CSV or TSV: the name in the tree, and the name that it gets; such as FILE.names.tsv beside a PHYLIP file",
    )
    add("tree", metavar="TREE", type=Path, help="Newick of any program")
    add("-o", "--out", metavar="FILE.nwk", type=Path, help="write Newick here, not to stdout")
    add_overwrite(parser)
    add("-q", "--quiet", action="store_true", help="do not say what was named")


def execute(args: argparse.Namespace) -> int:
    """Write the tree; return the exit status."""
    from tartan.base.shown_names import match_names, read_names

    require_outputs(args, (args.out, NEWICK))
    tree, table = read_tree(args.tree), read_names(args.table)
    leaves = [tree.names[leaf] for leaf in tree.leaves]
    matched = match_names(leaves, [*table])
    n_named = sum(name is not None for name in matched)
    if not n_named:
        raise ConfigError(f"{args.table} has none of the leaves of {args.tree}, such as {leaves[0]!r}")
    shown = list(tree.names)
    for leaf, name in zip(tree.leaves, matched, strict=True):
        if name is not None:
            shown[leaf] = table[name]
    named = replace(tree, names=tuple(shown))
    if args.out is not None:
        write_text(args.out, named.newick() + "\n")
    if args.json:
        print_json({"named": n_named, "leaves": len(leaves), "newick": named.newick()})
    elif args.out is None:
        put(named.newick())
    if not args.quiet:
        where = "" if args.out is None else f"; tree in {args.out}"
        say(f"{n_named} of {len(leaves)} leaves have names of {args.table}{where}")
    return 0
