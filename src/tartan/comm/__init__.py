"""Messages among the ranks of one computation: the protocol, and the loopback that lives in threads."""
