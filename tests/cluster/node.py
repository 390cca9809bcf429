"""A node: containerd, kubelet and kube-proxy, in a network namespace of its own from the second node on.

Images and volumes lie in memory, so that they are gone with the mount. The nodes share processes and mounts, and are
joined to the first one by a cable each, which a test can cut.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.commands import output
from tests.cluster.ground import BRIDGE, FIRST, Ground, Words, make_bridge, succeeds, until
from tests.cluster.identities import certificate, make
from tests.cluster.images import pause_archive

MEMORY = "6g"
SHARES = 16 * 1024  # as much as 16 processes
CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class Node:
    ground: Ground
    index: int

    @property
    def name(self) -> str:
        return f"node{self.index}"

    @property
    def root(self) -> Path:
        return self.ground.folder / self.name

    @property
    def address(self) -> str:
        return f"10.244.{self.index}.1"

    @property
    def socket(self) -> Path:
        return self.root / "containerd.sock"

    @property
    def cable(self) -> str:
        """The first node's end of the cable to this one."""
        return f"cable{self.index}"

    @property
    def cgroup(self) -> str:
        """Named after the cluster, too: two clusters on a machine don't meet."""
        return f"{self.ground.folder.name}-{self.name}"

    @property
    def enter(self) -> list[str]:
        return ["nsenter", f"--net=/run/netns/{self.name}"] if self.index else []

    def spawn(self, name: str, command: Words, *, is_first: bool = True) -> None:
        self.ground.spawn(f"{name}-{self.name}", [*self.enter, *command], is_first=is_first)


def start(node: Node) -> None:
    """Errors: ClusterFailed."""
    (node.root).mkdir()
    output(["mount", "-t", "tmpfs", "-o", f"size={MEMORY}", node.name, node.root])
    if node.index:
        _join(node)
    for hierarchy in CGROUPS.iterdir():  # a kubelet removes what it doesn't know, so that each has a root of its own
        if hierarchy.is_dir():
            succeeds(["mkdir", "-p", hierarchy / node.cgroup])
    _share_processors(node)
    make(node.ground, node.name, f"/O=system:nodes/CN=system:node:{node.name}")
    _start_containerd(node)
    _start_kubelet(node)
    _start_proxy(node)


def _share_processors(node: Node) -> None:
    """On a busy machine all of a node's pods together would get as much as one process of somebody else's."""
    shares = CGROUPS / "cpu" / node.cgroup / "cpu.shares"
    if shares.exists():
        shares.write_text(str(SHARES))


def load(node: Node, archive: Path) -> None:
    """The image in this archive becomes one of the node's. Errors: ClusterFailed."""
    output(["ctr", "--address", node.socket, "--namespace", "k8s.io", "images", "import", archive], seconds=300)


def _join(node: Node) -> None:
    here, there = f"10.245.{node.index}.1", f"10.245.{node.index}.2"
    output(["ip", "netns", "add", node.name])
    output(["ip", "link", "add", node.cable, "type", "veth", "peer", "name", "eth0", "netns", node.name])
    output(["ip", "address", "add", f"{here}/30", "dev", node.cable])
    output(["ip", "link", "set", node.cable, "up"])
    make_bridge(node.enter, node.address)
    output([*node.enter, "ip", "address", "add", f"{there}/30", "dev", "eth0"])
    output([*node.enter, "ip", "link", "set", "eth0", "up"])
    output([*node.enter, "ip", "route", "add", "default", "via", here])
    output(["ip", "route", "add", f"10.244.{node.index}.0/24", "via", there])


def _start_containerd(node: Node) -> None:
    (node.root / "cni").mkdir()
    ranges = {
        "type": "host-local",
        "dataDir": str(node.root / "ipam"),
        "ranges": [[{"subnet": f"10.244.{node.index}.0/24"}]],
    }
    bridge = {"type": "bridge", "bridge": BRIDGE, "isGateway": True, "hairpinMode": True}
    plugins = [
        bridge | {"ipam": ranges | {"routes": [{"dst": "0.0.0.0/0"}]}},
        {"type": "portmap", "capabilities": {"portMappings": True}},
    ]
    network = {"cniVersion": "0.4.0", "name": "bridge", "plugins": plugins}
    (node.root / "cni" / "10-bridge.conflist").write_text(json.dumps(network))
    config = node.root / "containerd.toml"
    config.write_text(_CONTAINERD.format(root=node.root))
    node.spawn("containerd", ["containerd", "--config", config], is_first=False)  # pods would be first, too
    until(lambda: succeeds(["ctr", "--address", node.socket, "version"]), f"containerd of {node.name} answers")
    load(node, pause_archive())


def _start_kubelet(node: Node) -> None:
    config = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{node.cgroup}",
        "containerRuntimeEndpoint": f"unix://{node.socket}",
        "oomScoreAdj": 0,  # a lower one needs CAP_SYS_RESOURCE
        "address": node.address,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(certificate(node.ground, "ca"))},
        },
        "authorization": {"mode": "Webhook"},
        "enforceNodeAllocatable": ["none"],
        "failSwapOn": False,
        "podCIDR": f"10.244.{node.index}.0/24",
        "clusterDomain": "cluster.local",
        "clusterDNS": [FIRST],
        "evictionHard": {
            "memory.available": "100Mi",
            **dict.fromkeys(("nodefs.available", "nodefs.inodesFree", "imagefs.available"), "1%"),
        },
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "podLogsDir": str(node.root / "pods"),
        "resolvConf": "",
    }
    flags = {
        "config": _written(node, "kubelet", config),
        "kubeconfig": node.ground.kubeconfig(node.name),
        "hostname-override": node.name,
        "node-ip": node.address,
        "root-dir": node.root / "kubelet",
        "cert-dir": node.root / "pki",
    }
    words = [f"--{name}={value}" for name, value in flags.items()]
    node.spawn("kubelet", [node.ground.program("kubelet"), *words])


def _start_proxy(node: Node) -> None:
    config = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clientConnection": {"kubeconfig": str(node.ground.kubeconfig("proxy"))},
        "clusterCIDR": "10.244.0.0/16",
        "hostnameOverride": node.name,
        "bindAddress": node.address,
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "nodePortAddresses": ["127.0.0.0/8"],
    }
    node.spawn("proxy", [node.ground.program("kube-proxy"), f"--config={_written(node, 'proxy', config)}"])


def _written(node: Node, name: str, config: Mapping[str, object]) -> Path:
    path = node.root / f"{name}.json"
    path.write_text(json.dumps(config))
    return path


_CONTAINERD = """\
version = 2
root = "{root}/containerd"
state = "{root}/containerd-state"
[grpc]
  address = "{root}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{root}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
"""
