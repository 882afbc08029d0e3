"""Policy: which pairs, in which order, what stays in which cache, what runs next.

Nothing here starts a thread, opens a file, reads a clock or touches a device. Events go in, actions come out,
so that the same policy drives a real run, the tests and ``tartan plan``.
"""
