"""What the cluster is made of, each in one version, and where it is kept: outside of the tree, in the user's cache."""

from pathlib import Path

from tests.helm_tools import cache

KUBERNETES = "1.37.2"
COREDNS = "1.15.0"
LEADER_WORKER_SET = "0.9.0"
GO = (1, 26)  # the least that builds this Kubernetes
SUITE = "trixie"  # Debian 13: the images' system, with Python 3.13 and Valkey 8.1

PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy")
DNS = f"coredns-{COREDNS}"
SETS = f"lws-{LEADER_WORKER_SET}"

# program that must be on PATH, or file that must exist -> the Debian package that brings it
DEBIAN = {
    "etcd": "etcd-server",
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
    "nft": "nftables",
    "iptables": "iptables",
    "buildah": "buildah",
    "mmdebstrap": "mmdebstrap",
    "openssl": "openssl",
    "ip": "iproute2",
    "gcc": "gcc",
    "/usr/include/stdlib.h": "libc6-dev",
}


def place() -> Path:
    """The folder of the built programs. Another one for another Kubernetes."""
    return cache() / f"kubernetes-{KUBERNETES}"


def images_place() -> Path:
    return cache() / "images"


def missing_programs() -> list[str]:
    """What is still to be built."""
    return [name for name in (*PROGRAMS, DNS, SETS) if not (place() / "bin" / name).exists()]
