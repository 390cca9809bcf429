"""Published weights: sealed, checked, kept while somebody needs them, deleted then."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file  # pyright: ignore[reportUnknownVariableType]

from rolloutfleet.broker import Beat
from rolloutfleet.errors import ProtocolMismatch, WrongWeights
from rolloutfleet.weights import MANIFEST, check, delete_unused, hash_of, seal, unused
from tests.fakes.broker import WORKER, Fleet


def written(folder: Path, text: str = "weights") -> Path:
    (folder / "inner").mkdir(parents=True)
    (folder / "model.bin").write_text(text)
    (folder / "inner" / "config.json").write_text("{}")
    return folder


def test_sealed_weights_are_known_by_their_hash(tmp_path: Path):
    folder = written(tmp_path / "w")
    manifest = seal(folder)
    assert manifest == hash_of(folder)
    check(folder, manifest, with_hashes=True)


def test_equal_weights_have_equal_hashes_and_others_have_others(tmp_path: Path):
    one, same, other = (seal(written(tmp_path / name, text)) for name, text in (("a", "x"), ("b", "x"), ("c", "y")))
    assert one == same != other


def test_nothing_is_left_aside_by_sealing(tmp_path: Path):
    folder = written(tmp_path / "w")
    seal(folder)
    assert sorted(path.name for path in folder.iterdir()) == ["inner", "model.bin", MANIFEST]


def test_sealed_again_they_are_the_same(tmp_path: Path):
    folder = written(tmp_path / "w")
    assert seal(folder) == seal(folder)


type Harm = Callable[[Path], None]


def change_a_byte(folder: Path) -> None:
    (folder / "model.bin").write_text("weightz")


def lengthen(folder: Path) -> None:
    (folder / "model.bin").write_text("weights, more")


def remove(folder: Path) -> None:
    (folder / "inner" / "config.json").unlink()


def add(folder: Path) -> None:
    (folder / "more.bin").write_text("more")


@pytest.mark.parametrize("harm", [change_a_byte, lengthen, remove, add])
def test_changed_weights_are_not_sealed_again(tmp_path: Path, harm: Harm):
    folder = written(tmp_path / "w")
    seal(folder)
    harm(folder)
    with pytest.raises(WrongWeights, match="new folder"):
        seal(folder)


@pytest.mark.parametrize(
    ("harm", "says"), [(lengthen, r"model\.bin was changed"), (remove, "is missing"), (add, r"more\.bin came after")]
)
def test_a_reader_sees_without_reading_all_that_files_changed(tmp_path: Path, harm: Harm, says: str):
    folder = written(tmp_path / "w")
    manifest = seal(folder)
    harm(folder)
    with pytest.raises(WrongWeights, match=says):
        check(folder, manifest)


def test_a_reader_that_reads_all_sees_a_changed_byte(tmp_path: Path):
    folder = written(tmp_path / "w")
    manifest = seal(folder)
    change_a_byte(folder)
    with pytest.raises(WrongWeights, match=r"model\.bin was changed"):
        check(folder, manifest, with_hashes=True)


def test_a_reader_refuses_other_weights(tmp_path: Path):
    ours, theirs = written(tmp_path / "ours"), written(tmp_path / "theirs", "other")
    seal(ours)
    with pytest.raises(WrongWeights, match="other weights than were published"):
        check(ours, seal(theirs))


def test_weights_that_are_cut_off_are_not_published(tmp_path: Path):
    whole = tmp_path / "whole"
    whole.mkdir()
    save_file({"a": np.zeros(100, np.float32), "b": np.ones(3, np.float32)}, whole / "model.safetensors")
    seal(whole)
    data = (whole / "model.safetensors").read_bytes()
    for cut in (0, 5, 50, len(data) - 1):
        folder = tmp_path / str(cut)
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(data[:cut])
        with pytest.raises(WrongWeights, match="no whole safetensors file"):
            seal(folder)


def test_hidden_files_are_not_the_weights(tmp_path: Path):
    folder = written(tmp_path / "w")
    manifest = seal(folder)
    (folder / ".cache").mkdir()
    (folder / ".cache" / "lock").write_text("")
    check(folder, manifest, with_hashes=True)


@pytest.mark.parametrize("is_there", [False, True])
def test_there_must_be_weights_to_seal(tmp_path: Path, is_there: bool):
    folder = tmp_path / "w"
    if is_there:
        folder.mkdir()
    with pytest.raises(WrongWeights, match="write the weights before"):
        seal(folder)


def test_weights_without_manifest_are_refused(tmp_path: Path):
    with pytest.raises(WrongWeights, match="mounted"):
        check(written(tmp_path / "w"), "abc")


def test_a_manifest_that_is_none_is_refused(tmp_path: Path):
    folder = written(tmp_path / "w")
    (folder / MANIFEST).write_text("[]")
    with pytest.raises(WrongWeights, match="no manifest"):
        check(folder, hash_of(folder))


def test_a_manifest_of_a_newer_format_asks_for_an_upgrade(tmp_path: Path):
    folder = written(tmp_path / "w")
    (folder / MANIFEST).write_text('{"v": 2, "files": {}}')
    with pytest.raises(ProtocolMismatch, match="upgrade"):
        check(folder, hash_of(folder))


# Kept and deleted


async def published(fleet: Fleet, tmp_path: Path, count: int) -> list[Path]:
    folders = [written(tmp_path / str(number + 1)) for number in range(count)]
    for folder in folders:
        await fleet.publish(str(folder), manifest=seal(folder))
    return folders


async def versions(fleet: Fleet, keep: int = 2) -> list[int]:
    return [one.version for one in await unused(fleet.broker, keep)]


async def test_the_last_weights_are_kept(fleet: Fleet, tmp_path: Path):
    await published(fleet, tmp_path, 5)
    assert [await versions(fleet, keep) for keep in (0, 1, 2, 4, 9)] == [[1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3], [1], []]


async def test_weights_that_a_worker_serves_or_is_to_load_are_kept(fleet: Fleet, tmp_path: Path):
    folders = await published(fleet, tmp_path, 5)
    facts = {"weight_path": str(folders[0]), "loads_path": str(folders[2])}
    await fleet.broker.heartbeat(Beat(WORKER, (), 1, facts))
    assert await versions(fleet) == [2]


async def test_weights_that_a_worker_has_its_turn_to_load_are_kept(fleet: Fleet, tmp_path: Path):
    folder = written(tmp_path / "1")
    await fleet.publish(str(folder), manifest=seal(folder))
    await fleet.turn("begin", 1)
    for number in range(2, 6):
        await fleet.publish(str(tmp_path / str(number)))
    assert await versions(fleet) == []
    await fleet.turn("left", 1)
    assert await versions(fleet) == [1]


async def test_a_folder_that_was_published_again_is_kept(fleet: Fleet, tmp_path: Path):
    folders = await published(fleet, tmp_path, 3)
    await fleet.publish(str(folders[0]))
    assert await versions(fleet, 1) == [2, 3]


async def test_only_sealed_folders_are_deleted(fleet: Fleet, tmp_path: Path):
    for path in (str(written(tmp_path / "unsealed")), "org/model", "", str(tmp_path / "missing"), "/w"):
        await fleet.publish(path, mode="external")
    assert await versions(fleet) == []


async def test_what_is_unused_is_deleted_when_asked(fleet: Fleet, tmp_path: Path):
    folders = await published(fleet, tmp_path, 4)
    assert [one.path for one in await delete_unused(fleet.broker)] == folders[:2]
    assert [folder.exists() for folder in folders] == [False, False, True, True]
    assert await delete_unused(fleet.broker) == []


async def test_nothing_is_unused_in_a_run_without_weights(fleet: Fleet):
    assert await unused(fleet.broker) == []
