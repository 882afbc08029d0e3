"""Maps: points whose distances follow a matrix."""
