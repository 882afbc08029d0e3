"""Block tasks: what pieces need, which rank computes which of them, and in which order."""
