"""TLS contexts from the certificates of a run: both ends show one, and no name is compared, as ranks have none."""

from __future__ import annotations

import os
import ssl

from tartan.cluster.engine import Credentials
from tartan.errors import ConfigError
from tartan.workers.arena import memory_file


def tls_context(credentials: Credentials, *, server: bool) -> ssl.SSLContext | None:
    """Return a context for one end; None where the run has no certificates.

    Raises
    ------
    ConfigError
        If the certificate or its key cannot be used.
    """
    if not credentials.encrypted:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    if server:
        context.num_tickets = 0  # connections are kept, not resumed
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_verify_locations(cadata=credentials.authority)
        _load_chain(context, credentials)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(f"the certificate of this process cannot be used: {error}") from None
    return context


def _load_chain(context: ssl.SSLContext, credentials: Credentials) -> None:
    """Load a certificate and its key, which the library takes from files alone."""
    descriptor = memory_file(0)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write((credentials.certificate + credentials.key).encode())
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
