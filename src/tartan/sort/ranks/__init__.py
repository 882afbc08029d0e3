"""A sort on several ranks: run files stay where they were sorted, parts of the result are merged from all of them."""
