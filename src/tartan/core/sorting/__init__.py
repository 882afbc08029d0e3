"""A sort on several ranks: which rank sorts, keeps and merges what, and who takes over from one that is lost."""
