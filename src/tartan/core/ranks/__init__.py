"""A run on several ranks: who computes what, where items come from, and what they tell each other."""
