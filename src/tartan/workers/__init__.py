"""Where code of applications runs: processes and threads, the memory they share, how an application travels."""
