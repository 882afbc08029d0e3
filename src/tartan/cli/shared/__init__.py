"""What commands share: options, matrices, tables, streams, and what is printed of runs and maps."""
