"""The story of a run: request, plan, execute, reopen, result. The only door to execution."""
