"""What tests break where the cluster is our own: its API server, its kubelets, its cables.

Everything that is broken in a block is whole again after it, however the block ends.
"""

import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.ground import Ground
from tests.cluster.kube import Json, command, get, is_ready, kubectl, name_of, uid_of, until

_CUT = """
table inet cut {{
  chain incoming {{ type filter hook prerouting priority -300; iifname "{cable}" drop; }}
  chain outgoing {{ type filter hook postrouting priority 300; oifname "{cable}" drop; }}
}}
"""
_REFUSAL = """
table inet refusal {{
  chain incoming {{
    type filter hook input priority -300;
    ip saddr {address} tcp dport 6443 reject with tcp reset;
  }}
}}
"""

_UNPROBED = """
table inet unprobed {{
  chain outgoing {{ type filter hook output priority -300; ip daddr {address} tcp dport 8081 drop; }}
}}
"""


@dataclass(frozen=True, slots=True)
class Ours:
    ground: Ground

    @asynccontextmanager
    async def without_api_server(self) -> AsyncGenerator[None]:
        os.kill(1, signal.SIGUSR1)
        try:
            yield
        finally:
            os.kill(1, signal.SIGUSR2)
            await until(_answers, "the API server answers again")

    def processes(self, pod: Json, module: str) -> list[int]:
        """Processes `python -m <module>` of a pod."""
        return [int(found.name) for found in Path("/proc").glob("[0-9]*") if _is_of(found, uid_of(pod), module)]

    @asynccontextmanager
    async def frozen_kubelet(self, node: str) -> AsyncGenerator[None]:
        pid = self.ground.pid(f"kubelet-{node}")
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    @asynccontextmanager
    async def refused_by_api_server(self, address: str) -> AsyncGenerator[None]:
        """Connections of this pod to the API server are reset, those that are open, too."""
        async with _ruled("refusal", _REFUSAL.format(address=address)):
            yield

    @asynccontextmanager
    async def unprobed(self, pod: Json) -> AsyncGenerator[None]:
        """The probes of this pod, on the first node, are not answered; it works on."""
        async with _ruled("unprobed", _UNPROBED.format(address=pod["status"]["podIP"])):
            yield

    def make_volume(self, name: str, owner: int) -> str:
        """A folder for a volume, which goes with the cluster."""
        folder = self.ground.folder / "volumes" / name
        folder.mkdir(parents=True)
        os.chown(folder, owner, owner)
        return str(folder)

    @asynccontextmanager
    async def cut_off(self, node: str) -> AsyncGenerator[None]:
        """No packet reaches the node, and none leaves it; what runs on it goes on."""
        cable = node.replace("node", "cable")
        async with _ruled("cut", _CUT.format(cable=cable)):
            yield
        await until(lambda: node_ready(node), f"{node} is ready again")


@asynccontextmanager
async def _ruled(table: str, rules: str) -> AsyncGenerator[None]:
    await command("nft", "-f", "-", stdin=rules)
    try:
        yield
    finally:
        await command("nft", "delete", "table", "inet", table)


def _is_of(process: Path, uid: str, module: str) -> bool:
    try:
        words = (process / "cmdline").read_bytes().split(b"\0")
        return words[1:3] == [b"-m", module.encode()] and uid in (process / "cgroup").read_text()
    except OSError:  # it ended
        return False


async def node_ready(name: str) -> bool:
    (node,) = await get("node", name)
    return is_ready(node)


async def nodes() -> list[str]:
    return sorted(name_of(node) for node in await get("nodes"))


async def _answers() -> bool:
    return await kubectl("get", "--raw", "/readyz") == "ok"
