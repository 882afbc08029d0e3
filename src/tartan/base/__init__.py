"""What every room stands on: files, locks, the machine, progress, signals, trace, checks. Imports errors only."""
