"""What tests and benchmarks stand on: stand-ins for CuPy and MPI, engines and links that fail on command, compilers."""
