"""Vector clustering with a sponge by deterministic annealing."""
