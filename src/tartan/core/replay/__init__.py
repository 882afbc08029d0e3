"""The policy in virtual time: what a run would do, before it does it."""
