"""Published weights: folders that never change, known by the hash of their manifest, deleted when nobody needs them.

    manifest = seal(folder)            # writes rolloutfleet.json into it: the hash of that file names the weights
    check(folder, manifest)            # whoever loads them refuses others

Invariants: the manifest is written aside and renamed into place, last of all, so that a folder with one is whole; a
sealed folder that was changed is refused; a folder is deleted only if this run published it, and neither the policy nor
any worker or turn names it.
"""

import asyncio
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rolloutfleet.answers import as_texts
from rolloutfleet.broker import Broker
from rolloutfleet.errors import ProtocolMismatch, WrongWeights
from rolloutfleet.policy import Mode, Publication

MANIFEST = "rolloutfleet.json"
FORMAT = 1
_HASHING_THREADS = 4  # sha256 lets go of the interpreter's lock; more threads wait for the disk


@dataclass(frozen=True, slots=True)
class Unused:
    """A folder that may be deleted: the version that lies in it, and where."""

    version: int
    path: Path


# Sealing and checking


def prepare(path: str, label: str, mode: Mode, at_once: int, sealed: bool) -> Publication:
    """What is published, with the folder sealed where there is one to seal. Errors: WrongWeights, ValueError."""
    weights = Publication(path, label, mode, at_once)
    if not path or not sealed or mode == "external":
        return weights
    return replace(weights, path=str(Path(path).absolute()), manifest=seal(path))


def seal(folder: str | Path) -> str:
    """Writes the manifest; its hash. A folder that is sealed already must be as it was. Errors: WrongWeights."""
    root = Path(folder)
    if not root.is_dir():
        raise WrongWeights(f"{root} is no folder here: write the weights before they are published")
    if (root / MANIFEST).exists():
        return _sealed_before(root)
    files = _hashes(root)
    if not files:
        raise WrongWeights(f"{root} is empty: write the weights before they are published")
    for path in root.rglob("*.safetensors"):
        _check_tensors(path)
    text = json.dumps({"v": FORMAT, "files": files}, indent=1, sort_keys=True).encode()
    aside = root / f".{MANIFEST}.{uuid.uuid4().hex}"
    with aside.open("wb") as file:
        file.write(text)
        os.fsync(file.fileno())
    aside.rename(root / MANIFEST)
    return hashlib.sha256(text).hexdigest()


def _check_tensors(path: Path) -> None:
    """A file that is cut off would end every engine that reads it. Errors: WrongWeights."""
    try:
        with path.open("rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
            data = file.tell() + max((entry["data_offsets"][1] for name, entry in header.items() if name[0] != "_"))
        is_whole = data == path.stat().st_size
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, MemoryError):
        is_whole = False
    if not is_whole:
        raise WrongWeights(f"{path} is no whole safetensors file: write the weights again, in a new folder")


def _sealed_before(root: Path) -> str:
    manifest = hash_of(root)
    check(root, manifest, with_hashes=True)
    return manifest


def hash_of(folder: str | Path) -> str:
    """The hash of a sealed folder's manifest. Errors: WrongWeights."""
    return hashlib.sha256(_read(Path(folder) / MANIFEST)).hexdigest()


def check(folder: str | Path, manifest: str, *, with_hashes: bool = False) -> None:
    """Whether these are the weights of this manifest: every file of its size, and no other beside them.

    `with_hashes`: reads each file, too. Errors: WrongWeights, ProtocolMismatch.
    """
    root = Path(folder)
    text = _read(root / MANIFEST)
    found = hashlib.sha256(text).hexdigest()
    if found != manifest:
        raise WrongWeights(f"{root} holds other weights than were published: its manifest is {found[:12]}, not that")
    files = _files_in(root, text)
    there = {path.relative_to(root).as_posix(): path.stat().st_size for path in _walk(root)}
    for name in sorted(files.keys() | there.keys()):
        if name not in there:
            raise WrongWeights(f"{root / name} is missing: publish the weights again, in a new folder")
        if name not in files:
            raise WrongWeights(
                f"{root / name} came after the weights were published: take it away, or publish in a new folder"
            )
        if files[name]["bytes"] != there[name]:
            raise WrongWeights(f"{root / name} was changed after it was published: publish in a new folder")
    if with_hashes and (changed := [name for name, entry in _hashes(root).items() if entry != files[name]]):
        raise WrongWeights(f"{root / changed[0]} was changed after it was published: publish in a new folder")


def _files_in(root: Path, text: bytes) -> Mapping[str, Any]:
    try:
        content = json.loads(text)
        if content["v"] > FORMAT:
            raise ProtocolMismatch(f"{root / MANIFEST} has format {content['v']}, this reads up to {FORMAT}: upgrade")
        return content["files"]
    except (ValueError, LookupError, TypeError) as error:
        raise WrongWeights(f"{root / MANIFEST} is no manifest: publish in a new folder") from error


def _read(manifest: Path) -> bytes:
    try:
        return manifest.read_bytes()
    except OSError as error:
        raise WrongWeights(
            f"{manifest} can't be read ({error.strerror}): is the volume with the weights mounted here?"
        ) from error


def _walk(root: Path) -> Iterator[Path]:
    """The files that belong to the weights: hidden ones are other programs'."""
    for path in sorted(root.rglob("*")):
        parts = path.relative_to(root).parts
        if path.is_file() and path != root / MANIFEST and not any(part.startswith(".") for part in parts):
            yield path


def _hashes(root: Path) -> dict[str, dict[str, Any]]:
    paths = list(_walk(root))
    with ThreadPoolExecutor(_HASHING_THREADS) as threads:
        found = list(threads.map(_hash, paths))
    return {path.relative_to(root).as_posix(): entry for path, entry in zip(paths, found, strict=True)}


def _hash(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


# What nobody needs any more


async def unused(broker: Broker, keep: int = 2) -> list[Unused]:
    """Folders of weights that were published and may be deleted, the oldest first.

    The last `keep` versions stay, and whatever the policy, a worker (what it serves) or a turn (what it loads) names.
    Errors: BrokerUnavailable.
    """
    key = broker.keys.named
    policy, capacity, turns = await broker.calls.read(
        [["HGETALL", key("policy")], ["HGETALL", key("capacity")], ["ZRANGE", key("updating"), 0, -1]]
    )
    fields = as_texts(policy)
    paths = {int(name.removeprefix("path:")): path for name, path in fields.items() if name.startswith("path:")}
    newest = int(fields.get("version", 0))
    named = set(range(newest - max(1, keep) + 1, newest + 1)) | {int(turn.split()[1]) for turn in turns}
    facts = [json.loads(text) for name, text in as_texts(capacity).items() if name.endswith(":facts")]
    in_use = {paths.get(version) for version in named} | {path for one in facts for path in _paths_of(one)}
    found = [Unused(version, Path(path)) for version, path in sorted(paths.items()) if path not in in_use]
    return [one for one in found if one.path.is_absolute() and (one.path / MANIFEST).is_file()]


def _paths_of(facts: Mapping[str, Any]) -> Sequence[str]:
    """What a worker's engine serves, and what it is to load."""
    return [str(facts[name]) for name in ("weight_path", "loads_path") if facts.get(name)]


async def delete_unused(broker: Broker, keep: int = 2) -> list[Unused]:
    """Deletes what `unused` names; what was deleted. Errors: BrokerUnavailable, OSError."""
    deleted: list[Unused] = []
    for one in await unused(broker, keep):
        # Looked at again before each: deleting takes its time, and a worker may have begun to load it.
        if one in await unused(broker, keep):
            await asyncio.to_thread(_delete, one.path)
            await broker.calls.read([["HDEL", broker.keys.named("policy"), f"path:{one.version}"]])
            deleted.append(one)
    return deleted


def _delete(folder: Path) -> None:
    """The manifest goes first: what is half deleted is no published weights any more."""
    (folder / MANIFEST).unlink(missing_ok=True)
    shutil.rmtree(folder)
