"""The control plane: etcd, the API server, the controllers, the scheduler, and the cluster's name server."""

from tests.cluster import audit
from tests.cluster.commands import ClusterFailed
from tests.cluster.ground import FIRST, SERVICES, Ground, succeeds, until
from tests.cluster.identities import certificate, key
from tests.cluster.pins import DNS

ETCD, ETCD_PEER = "http://127.0.0.1:2379", "http://127.0.0.1:2380"


def start(ground: Ground) -> None:
    """Returns when the API server is ready. Errors: ClusterFailed."""
    _start_etcd(ground)
    start_api_server(ground)
    until(lambda: _answers(ground), "the API server answers")
    alone = ["--leader-elect=false", "--bind-address=127.0.0.1"]
    for name in ("controller-manager", "scheduler"):
        config = ground.kubeconfig(name)
        flags = [f"--{use}={config}" for use in ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")]
        extra = _controllers(ground) if name == "controller-manager" else []
        ground.spawn(name, [ground.program(f"kube-{name}"), *flags, *alone, *extra])


def start_api_server(ground: Ground) -> None:
    accounts = key(ground, "service-accounts")
    flags = {
        "etcd-servers": ETCD,
        "secure-port": 6443,
        "bind-address": FIRST,
        "advertise-address": FIRST,
        "tls-cert-file": certificate(ground, "api-server"),
        "tls-private-key-file": key(ground, "api-server"),
        "client-ca-file": certificate(ground, "ca"),
        "service-account-issuer": "https://kubernetes.default.svc",
        "service-account-key-file": accounts.with_suffix(".pub"),
        "service-account-signing-key-file": accounts,
        "service-cluster-ip-range": SERVICES,
        "authorization-mode": "Node,RBAC",
        "enable-admission-plugins": "NodeRestriction",
        "kubelet-client-certificate": certificate(ground, "admin"),
        "kubelet-client-key": key(ground, "admin"),
        "kubelet-preferred-address-types": "InternalIP",
        # An autoscaler's metrics are served by an API of its own behind this one, which is known by this certificate.
        "requestheader-client-ca-file": certificate(ground, "ca"),
        "requestheader-allowed-names": "front-proxy",
        "requestheader-username-headers": "X-Remote-User",
        "requestheader-group-headers": "X-Remote-Group",
        "requestheader-extra-headers-prefix": "X-Remote-Extra-",
        "proxy-client-cert-file": certificate(ground, "front-proxy"),
        "proxy-client-key-file": key(ground, "front-proxy"),
        "audit-policy-file": audit.write_policy(ground),
        "audit-log-path": audit.log_of(ground),
        "allow-privileged": "true",
        "profiling": "false",
    }
    words = [f"--{name}={value}" for name, value in flags.items()]
    ground.spawn("api-server", [ground.program("kube-apiserver"), *words])


def is_ready(ground: Ground) -> bool:
    known = [
        "--cacert",
        certificate(ground, "ca"),
        "--cert",
        certificate(ground, "admin"),
        "--key",
        key(ground, "admin"),
    ]
    return succeeds(["curl", "--silent", "--fail", "--max-time", "5", *known, f"https://{FIRST}:6443/readyz"])


def _answers(ground: Ground) -> bool:
    if not ground.runs("api-server"):
        raise ClusterFailed(f"the API server ended:\n{ground.tail('api-server')}")
    return is_ready(ground)


def start_names(ground: Ground) -> None:
    """Services by name, for pods."""
    (ground.folder / "Corefile").write_text(
        f". {{\n bind {FIRST}\n errors\n cache 5\n kubernetes cluster.local {{\n"
        f"  kubeconfig {ground.kubeconfig('admin')} local\n }}\n}}\n"
    )
    ground.spawn("dns", [ground.program(DNS), "-conf", "Corefile"])


def _start_etcd(ground: Ground) -> None:
    flags = {
        "data-dir": "etcd",
        "listen-client-urls": ETCD,
        "advertise-client-urls": ETCD,
        "listen-peer-urls": ETCD_PEER,
        "initial-advertise-peer-urls": ETCD_PEER,
        "initial-cluster": f"default={ETCD_PEER}",
    }
    ground.spawn("etcd", ["etcd", "--unsafe-no-fsync", *(f"--{name}={value}" for name, value in flags.items())])


def _controllers(ground: Ground) -> list[str]:
    return [
        f"--service-account-private-key-file={key(ground, 'service-accounts')}",
        f"--root-ca-file={certificate(ground, 'ca')}",
        "--use-service-account-credentials=true",
        # An autoscaler looks every few seconds, so that a test need not wait for a quarter of a minute.
        "--horizontal-pod-autoscaler-sync-period=3s",
        "--horizontal-pod-autoscaler-downscale-stabilization=5s",
    ]
