"""Pairwise clustering by deterministic annealing."""
