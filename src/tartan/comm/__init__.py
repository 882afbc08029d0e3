"""Messages among the ranks of one computation: the protocol, and the loopback between threads."""
