"""All pairs on one rank: which tiles, in which order, what stays in which cache, what runs next."""
