"""Keep run folders: manifest, ledger, results, disk cache, exports, and the view of a finished or unfinished run."""
