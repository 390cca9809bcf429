"""Keys, certificates and kubeconfigs of a cluster that lives for hours."""

import json
from pathlib import Path

from tests.cluster.commands import output
from tests.cluster.ground import API_ADDRESS, FIRST, Ground

_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30"]
_NAMES = [
    *("DNS:localhost", "DNS:kubernetes", "DNS:kubernetes.default", "DNS:kubernetes.default.svc"),
    *("IP:127.0.0.1", f"IP:{API_ADDRESS}", f"IP:{FIRST}"),
]

# Who takes part -> the subject of its certificate: the groups are what Kubernetes' own roles are bound to.
SUBJECTS = {
    "api-server": "/CN=kube-apiserver",
    "admin": "/O=system:masters/CN=admin",
    "controller-manager": "/CN=system:kube-controller-manager",
    "scheduler": "/CN=system:kube-scheduler",
    "front-proxy": "/CN=front-proxy",
    "proxy": "/CN=system:kube-proxy",
}


def make_all(ground: Ground) -> None:
    files = ["-keyout", key(ground, "ca"), "-out", certificate(ground, "ca"), "-subj", "/CN=ca"]
    usage = ["-addext", "keyUsage=critical,keyCertSign,cRLSign"]  # Python 3.13 trusts no CA without it
    output(["openssl", "req", "-x509", *_KEY, *files, *usage])
    service_accounts = key(ground, "service-accounts")
    output(["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", service_accounts])
    output(["openssl", "ec", "-in", service_accounts, "-pubout", "-out", service_accounts.with_suffix(".pub")])
    for name, subject in SUBJECTS.items():
        make(ground, name, subject)


def make(ground: Ground, name: str, subject: str) -> None:
    """A certificate that the cluster trusts, and a kubeconfig that shows it."""
    signed_by = ["-CA", certificate(ground, "ca"), "-CAkey", key(ground, "ca")]
    extensions = [f"subjectAltName={','.join(_NAMES)}", "extendedKeyUsage=serverAuth,clientAuth"]
    added = [word for extension in extensions for word in ("-addext", extension)]
    files = ["-keyout", key(ground, name), "-out", certificate(ground, name), "-subj", subject]
    output(
        ["openssl", "req", "-x509", *_KEY, *signed_by, *files, *added, "-addext", "basicConstraints=critical,CA:FALSE"]
    )
    server = {"server": f"https://{FIRST}:6443", "certificate-authority": str(certificate(ground, "ca"))}
    user = {"client-certificate": str(certificate(ground, name)), "client-key": str(key(ground, name))}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "local", "cluster": server}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": "local", "context": {"cluster": "local", "user": name}}],
        "current-context": "local",
    }
    ground.kubeconfig(name).write_text(json.dumps(config))


def key(ground: Ground, name: str) -> Path:
    return ground.folder / "pki" / f"{name}.key"


def certificate(ground: Ground, name: str) -> Path:
    return ground.folder / "pki" / f"{name}.crt"
