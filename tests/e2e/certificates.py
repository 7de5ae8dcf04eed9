# SPDX-License-Identifier: Apache-2.0
"""A certificate authority for tests, made by the openssl program."""
import atexit
import datetime
import os
import pathlib
import shutil
import socket
import ssl
import subprocess
import tempfile

import fleet
from fleet import grpc, pb_grpc, worker_grpc

NAME = "continuo.test"  # in every certificate without names of its own
NAMES = f"DNS:{NAME},DNS:localhost"
SKEW = datetime.timedelta(minutes=1)


def _openssl(*arguments):
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


class Authority:
    """Signs certificates; everything lies in a folder of its own until the end."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="continuo-ca-"))
        atexit.register(shutil.rmtree, self.folder, ignore_errors=True)
        self.ca = self.folder / "ca.crt"
        self._ca_key = self.folder / "ca.key"
        _openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                 "-keyout", self._ca_key, "-out", self.ca, "-subj", "/CN=test ca", "-days", 1,
                 "-addext", "keyUsage=critical,keyCertSign,cRLSign")
        self._config = self.folder / "ca.cnf"
        self._configure(NAMES)

    def _configure(self, names):
        self._config.write_text(f"""
[ca]
default_ca = authority
[authority]
database = {self.folder}/index.txt
serial = {self.folder}/serial
new_certs_dir = {self.folder}
default_md = sha256
unique_subject = no
policy = any_name
x509_extensions = extensions
[any_name]
commonName = supplied
[extensions]
subjectAltName = {names}
authorityKeyIdentifier = keyid
""")

    def issue(self, name, serial, days=1, names=NAMES):
        """A new key and certificate `name`.key and `name`.crt, in place of what is there; with
        days=-1 it has expired. `names` are its subject alternative names, as openssl takes them."""
        self._configure(names)
        new = self.folder / f"{name}.new"
        now = datetime.datetime.now(datetime.timezone.utc)
        begin, end = sorted((now, now + datetime.timedelta(days=days)))
        _openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout",
                 f"{new}.key", "-out", f"{new}.csr", "-subj", f"/CN={name}")
        (self.folder / "index.txt").write_text("")  # what was issued before does not count
        (self.folder / "serial").write_text(f"{serial:04X}\n")
        # Newer versions of `x509 -req` accept no time in the past.
        _openssl("ca", "-batch", "-notext", "-config", self._config, "-cert", self.ca,
                 "-keyfile", self._ca_key, "-startdate", f"{begin - SKEW:%Y%m%d%H%M%SZ}",
                 "-enddate", f"{end:%Y%m%d%H%M%SZ}", "-in", f"{new}.csr", "-out", f"{new}.crt")
        for suffix in "key", "crt":
            os.replace(f"{new}.{suffix}", self.folder / f"{name}.{suffix}")
        return self.files(name)

    def files(self, name):
        """(certificate, key)"""
        return self.folder / f"{name}.crt", self.folder / f"{name}.key"


def flags(authority, name, mutual=True):
    """The flags of a gateway or worker that serves as `name`."""
    certificate, key = authority.files(name)
    result = [f"--tls_cert_file={certificate}", f"--tls_key_file={key}"]
    return result + [f"--tls_ca_file={authority.ca}"] if mutual else result


def client(address, trust, shown=None):
    """A stock client that trusts one authority and shows (certificate, key)."""
    certificate, key = (p.read_bytes() for p in shown) if shown else (None, None)
    credentials = grpc.ssl_channel_credentials(trust.ca.read_bytes(), key, certificate)
    result = fleet.Client.__new__(fleet.Client)
    result.channel = grpc.secure_channel(address, credentials, options=[
        ("grpc.ssl_target_name_override", NAME), ("grpc.use_local_subchannel_pool", 1)])
    result.inference = pb_grpc.InferenceServiceStub(result.channel)
    result.worker = worker_grpc.WorkerServiceStub(result.channel)
    return result


def served_serial(address, trust, shown):
    """Serial number of the certificate that a new connection is served."""
    context = ssl.create_default_context(cafile=str(trust.ca))
    context.set_alpn_protocols(["h2"])
    context.load_cert_chain(*map(str, shown))
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=30) as plain:
        with context.wrap_socket(plain, server_hostname=NAME) as connection:
            return int(connection.getpeercert()["serialNumber"], 16)
