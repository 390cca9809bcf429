"""A trainer publishes weights."""

from pathlib import Path

import pytest
import redis.asyncio

from rolloutfleet import SyncTrainer, Trainer, WrongWeights
from rolloutfleet.weights import hash_of
from tests.fakes.worker import make_run
from tests.library.test_weights import written


async def test_a_trainer_publishes_a_folder_sealed(
    redis_url: str, run: str, client: redis.asyncio.Redis, tmp_path: Path
):
    await make_run(client, run)
    folder = written(tmp_path / "step-8")
    async with Trainer.connect(redis_url, run) as trainer:
        version = await trainer.publish_weights(folder, label="step 8", mode="drain", at_once=2)
        policy = await trainer.broker.policy()
    assert policy is not None
    assert (policy.version, policy.path, policy.manifest) == (version, str(folder), hash_of(folder))
    assert (policy.label, policy.mode, policy.at_once) == ("step 8", "drain", 2)


async def test_what_is_no_folder_is_not_published(redis_url: str, run: str, client: redis.asyncio.Redis):
    broker = await make_run(client, run)
    async with Trainer.connect(redis_url, run) as trainer:
        with pytest.raises(WrongWeights, match="is no folder here"):
            await trainer.publish_weights("/no/such/folder")
    assert await broker.policy() is None


async def test_a_path_that_is_not_seen_from_here_goes_unsealed(redis_url: str, run: str, client: redis.asyncio.Redis):
    broker = await make_run(client, run)
    async with Trainer.connect(redis_url, run) as trainer:
        await trainer.publish_weights("/in/the/pods", sealed=False)
    policy = await broker.policy()
    assert policy is not None
    assert (policy.path, policy.manifest) == ("/in/the/pods", "")


async def test_a_trainer_that_updates_the_engines_itself_draws_a_version(
    redis_url: str, run: str, client: redis.asyncio.Redis
):
    broker = await make_run(client, run)
    async with Trainer.connect(redis_url, run) as trainer:
        assert await trainer.publish_weights(mode="external", label="step 1") == 1
        with pytest.raises(ValueError, match="no path"):
            await trainer.publish_weights()
    policy = await broker.policy()
    assert policy is not None
    assert policy.is_external


async def test_a_trainer_without_asyncio_publishes_and_deletes_old_weights(
    redis_url: str, run: str, client: redis.asyncio.Redis, tmp_path: Path
):
    await make_run(client, run)
    folders = [written(tmp_path / str(number)) for number in range(3)]
    with SyncTrainer.connect(redis_url, run) as trainer:
        assert [trainer.publish_weights(folder) for folder in folders] == [1, 2, 3]
        deleted = trainer.delete_old_weights(keep=2)
    assert [one.path for one in deleted] == folders[:1]
    assert not folders[0].exists()
