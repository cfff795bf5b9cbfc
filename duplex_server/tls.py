"""Makes what TLS needs: a context from certificate files, and a self-signed certificate that is kept and reused."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import ssl
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.errors import ConfigError

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

EXTRA = "tls"
VALID_DAYS = 397
"""What clients that bound the life of a certificate take at most."""
RENEWED_DAYS = 30
"""Before its end, a certificate is made anew; clients must then be told of the new one."""
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
UNSPECIFIED = ("0.0.0.0", "::")


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate and its private key, each in a PEM file."""

    cert: Path
    key: Path


def context(certificate: Certificate) -> ssl.SSLContext:
    """How a listener with this certificate speaks. Raises `ConfigError` for files that do not belong together."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    for path, setting in ((certificate.cert, "server.tls_cert_file"), (certificate.key, "server.tls_key_file")):
        try:
            path.read_bytes()
        except OSError as error:
            raise ConfigError(f"can't read {path}: {error.strerror}", setting) from error
    try:
        # A password would be asked for on the terminal, where nobody may be.
        made.load_cert_chain(certificate.cert, certificate.key, password=_no_password)
    except (ssl.SSLError, ValueError) as error:
        message = f"{certificate.cert} and {certificate.key} are no certificate and its unencrypted private key in PEM"
        raise ConfigError(message, "server.tls_cert_file") from error
    return made


def _no_password() -> str:
    raise ValueError("the private key is encrypted")


def state_dir() -> Path:
    """Where a program keeps what it has made, by the rules of the system."""
    home = os.environ.get("XDG_STATE_HOME", "")
    return (Path(home) if os.path.isabs(home) else Path.home() / ".local" / "state") / "duplex-server"


def self_signed(folder: Path, host: str, more_names: Iterable[str] = (), now: datetime | None = None) -> Certificate:
    """A self-signed certificate for what listens at `host`, made where `folder` holds none that is good for long.

    It is for this machine's name, its loopback names, `host` and `more_names`. Only this user may read the key.
    Raises `ConfigError` when a library is missing or nothing can be written.
    """
    try:
        import cryptography  # noqa: F401  # it comes with an extra
    except ImportError as error:
        message = (
            "a self-signed certificate needs the library 'cryptography', not installed here: "
            f"pip install -e '.[{EXTRA}]' where the project is; or name files in server.tls_cert_file and tls_key_file"
        )
        raise ConfigError(message, "server.tls_self_signed") from error
    own = () if host in UNSPECIFIED else (host,)
    names = tuple(dict.fromkeys((*LOOPBACK_NAMES, socket.gethostname(), *own, *more_names)))
    stem = host.replace(":", "_")
    kept = Certificate(folder / f"{stem}.cert.pem", folder / f"{stem}.key.pem")
    now = now or datetime.now(UTC)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        key = _key(kept.key)
        if not _is_good(kept.cert, key, names, now):
            _write(kept.cert, _sign(key, names, now))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"can't keep a certificate in {folder}: {reason}", "server.state_dir") from error
    return kept


def _key(path: Path) -> EllipticCurvePrivateKey:
    """The key that is kept there; the first server to come makes it, and all others take it."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    if not path.exists():
        pem = ec.generate_private_key(ec.SECP256R1()).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        with _beside(path, pem) as written, contextlib.suppress(FileExistsError):
            os.link(written, path)
    key = serialization.load_pem_private_key(path.read_bytes(), None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError(f"{path} is not a key that this server has made; remove it")
    return key


def _is_good(path: Path, key: EllipticCurvePrivateKey, names: Iterable[str], now: datetime) -> bool:
    """Whether the certificate there is of this key, for these names, and not near its end."""
    from cryptography import x509

    try:
        cert = x509.load_pem_x509_certificate(path.read_bytes())
        san = cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (FileNotFoundError, ValueError, x509.ExtensionNotFound):
        return False
    return (
        cert.public_key() == key.public_key()
        and set(map(_general, names)) <= set(san)
        and cert.not_valid_before_utc <= now < cert.not_valid_after_utc - timedelta(days=RENEWED_DAYS)
    )


def _sign(key: EllipticCurvePrivateKey, names: Iterable[str], now: datetime) -> bytes:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "duplex-server, self-signed")])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))  # clocks differ
        .not_valid_after(now + timedelta(days=VALID_DAYS))
        .add_extension(x509.SubjectAlternativeName(map(_general, names)), critical=False)
        # Whoever trusts it trusts this server alone, and nothing that its key might sign.
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _general(name: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _write(path: Path, content: bytes) -> None:
    """Put it there at once: whoever reads the file meanwhile sees the old one or the new one, whole."""
    with _beside(path, content) as written:
        os.replace(written, path)


@contextlib.contextmanager
def _beside(path: Path, content: bytes) -> Iterator[Path]:
    """A file of that content in the same folder, readable by this user alone, for as long as it is needed."""
    handle, name = tempfile.mkstemp(dir=path.parent)
    written = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        yield written
    finally:
        written.unlink(missing_ok=True)
