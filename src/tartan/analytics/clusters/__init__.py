"""Clusters of a matrix or of points."""
