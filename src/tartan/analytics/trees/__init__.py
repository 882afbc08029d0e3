"""Trees: linkages, neighbour joining, Newick."""
