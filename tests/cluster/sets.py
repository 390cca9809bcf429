"""LeaderWorkerSet's own controller beside the API server, as the other controllers are, with its kinds and webhooks."""

import asyncio
import base64
import json
import os
import shutil
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import yaml

from tests.cluster.ground import FIRST, Ground
from tests.cluster.identities import certificate, key, make
from tests.cluster.kube import Json, apply, command, kubectl, until
from tests.cluster.pins import SETS
from tests.cluster.programs import SETS_MODULE, sets_module

PORT = 9443
NAME = "sets"
_OF_A_SET = {"matchExpressions": [{"key": "leaderworkerset.sigs.k8s.io/name", "operator": "Exists"}]}


@asynccontextmanager
async def acting(ground: Ground) -> AsyncGenerator[None]:
    """In the block somebody acts on sets. After it the cluster does not know them any more."""
    source = Path((await command("go", "-C", str(sets_module()), "list", "-m", "-f", "{{.Dir}}", SETS_MODULE)).strip())
    kinds, hooks = str(source / "config" / "crd" / "bases"), _webhooks(ground, source)
    await kubectl("apply", "--server-side", "-f", kinds)
    ground.spawn(NAME, [ground.program(SETS), f"--config={_config(ground)}", f"--kubeconfig={ground.kubeconfig(NAME)}"])
    try:
        await until(_answers, "the webhooks of sets answer")
        await apply(*hooks)
        yield
    finally:
        for hook in hooks:
            await kubectl("delete", hook["kind"], hook["metadata"]["name"], "--ignore-not-found")
        await kubectl("delete", "-f", kinds, "--ignore-not-found")
        os.kill(ground.pid(NAME), signal.SIGTERM)


def _config(ground: Ground) -> Path:
    """Its configuration: with a certificate of the cluster's authority, and alone."""
    make(ground, NAME, "/O=system:masters/CN=sets")
    folder = ground.folder / NAME
    folder.mkdir(exist_ok=True)
    shutil.copyfile(certificate(ground, NAME), folder / "tls.crt")
    shutil.copyfile(key(ground, NAME), folder / "tls.key")
    config: Json = {
        "apiVersion": "config.lws.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "webhook": {"host": FIRST, "port": PORT, "certDir": str(folder)},
        "metrics": {"bindAddress": "0"},
        "health": {"healthProbeBindAddress": "0"},
    }
    (folder / "config.yaml").write_text(json.dumps(config))
    return folder / "config.yaml"


def _webhooks(ground: Ground, source: Path) -> list[Json]:
    """As its own manifests have them, but by an address: it runs in no pod."""
    trusted = base64.b64encode(certificate(ground, "ca").read_bytes()).decode()
    found = list(yaml.safe_load_all((source / "config" / "webhook" / "manifests.yaml").read_text()))
    for number, config in enumerate(found):
        config["metadata"]["name"] = f"{NAME}-{number}"
        for hook in config["webhooks"]:
            path = hook["clientConfig"].pop("service")["path"]
            hook["clientConfig"] |= {"url": f"https://{FIRST}:{PORT}{path}", "caBundle": trusted}
            if "pods" in hook["rules"][0]["resources"]:
                hook["objectSelector"] = _OF_A_SET  # other pods must not wait for it
    return cast(list[Json], found)


async def _answers() -> bool:
    try:
        _, writer = await asyncio.open_connection(FIRST, PORT)
    except OSError:
        return False
    writer.close()
    return True
