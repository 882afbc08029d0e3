"""A certificate authority for one cluster: made for a short time, its key thrown away at once.

Every certificate of an authority may do everything in its cluster, also run code. So each cluster has an authority of
its own, and no more certificates can be made of it than those that were made at first.
"""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tartan.cluster.engine import Credentials
from tartan.errors import ConfigError, StoreError

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

# DAYS and _TEMPORARY_DAYS, by judgement: certificates written to a file outlive a run by days, not months; those in
# memory only must last longer than any run does. No benchmark.
DAYS = 7
_TEMPORARY_DAYS = 90
_NAMES = ("server", "client")


@dataclass(frozen=True)
class _Authority:
    """A key that signs, and its own certificate."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate


def temporary_credentials(days: float = _TEMPORARY_DAYS) -> Credentials:
    """Return a certificate of a new authority, in memory alone: for ranks that one command starts on one machine."""
    return _make_certificates(["local"], days)["local"]


def write_certificates(folder: Path, days: float = DAYS) -> list[Path]:
    """Write a new authority's certificates, and settings by which Dask and Tartan find them.

    Parameters
    ----------
    folder : Path
        Made if it is not there; readable by this user alone.
    days : float
        How long they hold.

    Returns
    -------
    list of Path
        ``ca.pem``; ``server.pem`` for schedulers and workers; ``client.pem`` for Tartan; their keys; ``dask.yaml``.

    Raises
    ------
    ConfigError
        If there are certificates in the folder, or ``days`` is not above 0.
    StoreError
        If the folder cannot be written.
    """
    if not days > 0:
        raise ConfigError(f"certificates must hold for more than 0 days, not {days:g}")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return [_new_file(folder / name, text) for name, text in _texts(folder.resolve(), days).items()]
    except FileExistsError as error:
        raise ConfigError(
            f"{error.filename} exists, and keys are never replaced; name another folder", code="exists"
        ) from None
    except OSError as error:
        raise StoreError(f"certificates cannot be written to {folder}: {error.strerror}") from None


def require_valid(credentials: Credentials, now: datetime.datetime | None = None) -> None:
    """Refuse a certificate that does not hold now.

    Raises
    ------
    ConfigError
        With the day on which it ended, or begins.
    """
    from cryptography import x509

    try:
        found = x509.load_pem_x509_certificate(credentials.certificate.encode())
    except ValueError as error:
        raise ConfigError(f"the certificate of this process cannot be read: {error}") from None
    now = now or datetime.datetime.now(datetime.UTC)
    if now >= found.not_valid_after_utc:
        raise ConfigError(
            f"the certificate of this process expired on {found.not_valid_after_utc:%Y-%m-%d at %H:%M} UTC; "
            "make new ones with `tartan cluster-certs DIR`, and start scheduler and workers with them"
        )
    if now < found.not_valid_before_utc:
        raise ConfigError(
            f"the certificate of this process holds from {found.not_valid_before_utc:%Y-%m-%d at %H:%M} UTC; "
            "compare the clocks of the machines"
        )


def _make_certificates(names: list[str], days: float) -> dict[str, Credentials]:
    """Return certificates of one new authority, by name; its key is gone afterwards."""
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise ConfigError("certificates need the extra cluster: pip install 'tartan-allpairs[cluster]'") from None
    authority = _authority(days)
    return {name: _issue(authority, name, days) for name in names}


def _authority(days: float) -> _Authority:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = _make_name("Tartan cluster authority")
    usage = _key_usage(signs_certificates=True)
    builder = _begin_certificate(name, name, days).public_key(key.public_key()).add_extension(usage, critical=True)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    return _Authority(key, builder.add_extension(identifier, critical=False).sign(key, hashes.SHA256()))


def _issue(authority: _Authority, name: str, days: float) -> Credentials:
    """Return one certificate: for both directions, because ranks call each other."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID

    key = ec.generate_private_key(ec.SECP256R1())
    both = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    made = (
        _begin_certificate(_make_name(f"Tartan {name}"), authority.certificate.subject, days)
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(both, critical=False)
        .add_extension(signer, critical=False)
        .sign(authority.key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Credentials(authority=_text(authority.certificate), certificate=_text(made), key=secret.decode())


def _begin_certificate(name: x509.Name, issuer: x509.Name, days: float) -> x509.CertificateBuilder:
    from cryptography import x509

    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(issuer)
    builder = builder.serial_number(x509.random_serial_number())
    early = now - datetime.timedelta(hours=2)  # the clocks of a cluster may be an hour apart
    return builder.not_valid_before(early).not_valid_after(now + datetime.timedelta(days=days))


def _make_name(text: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _text(certificate: x509.Certificate) -> str:
    from cryptography.hazmat.primitives import serialization

    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _texts(folder: Path, days: float) -> Mapping[str, str]:
    """Return the contents of the files, by name."""
    made = _make_certificates(list(_NAMES), days)
    texts = {"ca.pem": made["server"].authority}
    for name in _NAMES:
        texts |= {f"{name}.pem": made[name].certificate, f"{name}-key.pem": made[name].key}
    roles = [("scheduler", "server"), ("worker", "server"), ("client", "client")]
    lines = [
        "distributed:",
        "  comm:",
        "    require-encryption: true",
        "    tls:",
        f"      ca-file: {_quote(folder / 'ca.pem')}",
    ]
    for role, name in roles:
        lines += [f"      {role}:", f"        cert: {_quote(folder / f'{name}.pem')}"]
        lines += [f"        key: {_quote(folder / f'{name}-key.pem')}"]
    return {**texts, "dask.yaml": "\n".join(lines) + "\n"}


def _quote(path: Path) -> str:
    """Return a path as YAML takes it: as JSON does."""
    return json.dumps(str(path))


def _new_file(path: Path, text: str) -> Path:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w") as file:
        file.write(text)
    return path
