"""Two releases that work on one run: each keeps to its own pods."""

from tests.cluster.jobs import Job
from tests.cluster.kube import uid_of, until
from tests.cluster.release import Release
from tests.cluster.test_deaths import busy_worker


async def test_neither_of_two_releases_on_one_run_evicts_the_others_workers(release: Release, job: Job) -> None:
    other = Release(release.namespace, release.run, "other")
    await release.install()
    await other.install()
    await job.submit(100)
    async with job.training():
        for each in (release, other):
            await busy_worker(each, job)
        ours, theirs = await uids(release), await uids(other)
        killed = uid_of(await busy_worker(release, job))
        await release.kill(next(pod for pod in await release.pods() if uid_of(pod) == killed))

        async def is_barred() -> bool:
            return killed in await job.members("barred")

        await until(is_barred, "the deleted worker is barred")
        assert await job.members("barred") == {killed}
        await other.upgrade({"worker": {"replicas": 1}})
        await other.workers_ready(1)
        # Its own operator may have barred the one that it sent away, and nobody else.
        assert await job.members("barred") <= {killed} | theirs - await uids(other)
        await other.uninstall()
        await job.finished()
    assert await job.members("barred") & ours == {killed}
    await job.assert_whole()


async def uids(release: Release) -> set[str]:
    return {uid_of(pod) for pod in await release.live()}
