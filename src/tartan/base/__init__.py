"""Serve every other package: files, locks, the machine, progress, signals, trace, checks. Imports errors only."""
