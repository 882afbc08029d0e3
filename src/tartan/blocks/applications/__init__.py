"""Applications of block tasks, each a function of a session: ``matmul``, ``lu``, ``convolve``, ``pagerank``."""
