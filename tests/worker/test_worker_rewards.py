"""Rewards, group rewards, filters; and the strangers who write them."""

import asyncio
import json
import threading
import urllib.error
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from aiohttp import web

from rolloutfleet.messages import PromptGroup
from rolloutfleet.metrics import WorkerMetrics
from tests.fakes.engine import FakeEngine, said
from tests.worker import hooks
from tests.worker.fleet import Fleet, sample, until
from worker.health import Fitness
from worker.hooks import Hook, HookFailed, HookRunner
from worker.rewards import Scorer, exact_match, math_match
from worker.settings import WorkerSettings, WrongSetting

HOOKS = "tests.worker.hooks"


@pytest.fixture(autouse=True)
def fresh_switches() -> Iterator[None]:
    hooks.switches.clear()
    hooks.release_blocked.clear()
    yield
    hooks.release_blocked.set()
    hooks.switches["end"] = True


@pytest.mark.parametrize(
    ("label", "text", "reward"),
    [
        ("4", "so it is 4", 1.0),
        ("4", "4 or maybe 5", 0.0),
        ("72", "... #### 72", 1.0),
        ("some work\n#### 1,250", "It costs $1250.", 1.0),
        ("1,250", "#### 1250.0", 1.0),
        ("4", "#### 5 and not 4", 0.0),
        ("4", "", 0.0),
        ("Paris", " Paris\n", 1.0),
        ("Paris", "It is Paris", 0.0),
        ("-3", "the answer is -3", 1.0),
        (4, "4", 1.0),
        ("1/2", "1/2", 1.0),
        ("0.5", ".5", 1.0),
    ],
)
def test_exact_match_compares_the_end_of_an_answer_with_the_label(label: object, text: str, reward: float) -> None:
    assert exact_match(label, text) == reward


@pytest.mark.parametrize(
    ("label", "text", "reward"),
    [("\\frac{1}{2}", "so $x = 0.5$", 1.0), ("3", "\\boxed{3}", 1.0), ("3", "\\boxed{4}", 0.0), ("3", "", 0.0)],
)
def test_math_compares_expressions(label: str, text: str, reward: float) -> None:
    assert math_match(PromptGroup.make({"prompt": "x", "label": label}), sample(0, text=text)) == reward


@pytest.mark.parametrize("hook", ["length", "length_async"])
async def test_a_reward_hook_may_be_sync_or_async(fleet: Fleet, hook: str) -> None:
    await fleet.configure(n=2)
    await fleet.submit("g", label=None)
    async with fleet.worker(reward=f"{HOOKS}:{hook}"):
        (entry,) = await fleet.completed(1)
    assert json.loads(entry.fields["rewards"]) == [3.0, 3.0]


def scorer(fitness: Fitness | None = None, **settings: Any) -> Scorer:
    base: dict[str, Any] = {
        "redis_url": "redis://none",
        "run": "none",
        "reward_tries": 2,
        "reward_timeout_seconds": 0.1,
    }
    checked = WorkerSettings(**base | settings)
    runner = HookRunner(checked.reward_concurrency, checked.reward_timeout_seconds)
    return Scorer(checked, runner, fitness or Fitness(), WorkerMetrics())


PROMPT = PromptGroup.make({"id": "g", "prompt": "two and two?", "label": "4"})


@pytest.mark.parametrize("hook", ["raises", "raises_async"])
@pytest.mark.parametrize(
    "error",
    [ValueError("bad"), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), StopIteration()],
    ids=repr,
)
async def test_whatever_a_reward_raises_fails_with_the_hooks_name(hook: str, error: BaseException) -> None:
    hooks.switches["raise"] = error
    with pytest.raises(HookFailed, match=rf"^reward {HOOKS}:{hook} raised .*, 2 tries$"):
        await scorer(reward=f"{HOOKS}:{hook}").score(PROMPT, sample(0))


@pytest.mark.parametrize("value", [None, float("nan"), float("inf"), "1.0", [1.0]], ids=repr)
async def test_a_reward_that_is_no_finite_number_fails(value: Any) -> None:
    hooks.switches["return"] = value
    with pytest.raises(HookFailed, match=f"^reward {HOOKS}:returns returned .*, 1 tries$"):
        await scorer(reward=f"{HOOKS}:returns", reward_tries=1).score(PROMPT, sample(0))


async def test_a_hook_that_returns_a_coroutine_is_told_to_be_async() -> None:
    with pytest.raises(HookFailed, match="make the hook itself `async def`"):
        await scorer(reward=f"{HOOKS}:returns_coroutine", reward_tries=1).score(PROMPT, sample(0))


@pytest.mark.parametrize("hook", ["blocks", "swallows_cancel"])
async def test_a_reward_that_never_ends_keeps_no_permit(hook: str) -> None:
    stuck = scorer(reward=f"{HOOKS}:{hook}", reward_concurrency=1, reward_tries=1)
    for _ in range(2):
        with pytest.raises(HookFailed, match=f"^reward {HOOKS}:{hook} took longer than 0.1 s, 1 tries$"):
            await stuck.score(PROMPT, sample(0))
    hooks.switches["end"] = True


async def test_calls_that_never_return_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.hooks.MOST_STUCK", 1)
    stuck = scorer(reward=f"{HOOKS}:blocks", reward_tries=1)
    with pytest.raises(HookFailed, match="took longer"):
        await stuck.score(PROMPT, sample(0))
    with pytest.raises(HookFailed, match="1 calls never returned"):
        await stuck.score(PROMPT, sample(0))


async def test_calls_that_are_only_slow_are_as_many_as_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.hooks.MOST_STUCK", 1)
    runner, slow = HookRunner(8, timeout_seconds=30), Hook("slow", hooks.blocks)
    calls = [asyncio.create_task(runner.call(slow, PROMPT, sample(0))) for _ in range(4)]
    await until(lambda: threading.active_count() > len(calls))
    hooks.release_blocked.set()
    assert await asyncio.gather(*calls) == [1.0] * 4


@pytest.mark.parametrize("value", [None, [1.0], [1.0, None], "1.0"], ids=repr)
async def test_a_group_reward_of_another_shape_fails(value: Any) -> None:
    hooks.switches["return"] = value
    with pytest.raises(HookFailed, match=f"^group_reward {HOOKS}:returns returned "):
        await scorer(group_reward=f"{HOOKS}:returns").score_group(PROMPT, [sample(0), sample(1)], [1.0, 1.0])


@pytest.mark.parametrize("value", [None, True, "drop", ("drop", 3), ("keep",)], ids=repr)
async def test_a_filter_that_returns_nonsense_fails(value: Any) -> None:
    hooks.switches["return"] = value
    with pytest.raises(HookFailed, match=r'"keep", or \("drop", reason\)'):
        await scorer(group_filter=f"{HOOKS}:returns").score_group(PROMPT, [sample(0)], [1.0])


@pytest.mark.parametrize("hook", ["raises", "raises_async"])
async def test_a_hook_that_wants_to_end_the_process_ends_only_its_group(fleet: Fleet, hook: str) -> None:
    await fleet.configure(n=1, max_attempts=1)
    hooks.switches["raise"] = SystemExit(3)
    await fleet.submit_made("g")
    async with fleet.worker(reward=f"{HOOKS}:{hook}", reward_tries=1) as worked:
        (letter,) = await fleet.dead()
        assert not worked.running.done()
    assert letter["reason"] == f"sample 0: reward {HOOKS}:{hook} raised SystemExit: 3, 1 tries"


async def test_a_group_reward_that_fails_once_is_asked_again() -> None:
    hooks.switches["in_turn"] = [None, 3]
    scores = await scorer(group_reward=f"{HOOKS}:returns_in_turn").score_group(PROMPT, [sample(0)], [1.0])
    assert (scores.group_reward, hooks.switches["in_turn"]) == (3.0, [])


async def test_a_group_whose_filter_fails_is_failed_with_the_filters_name(fleet: Fleet) -> None:
    await fleet.configure(n=1, max_attempts=1)
    hooks.switches["return"] = "nonsense"
    await fleet.submit_made("g")
    async with fleet.worker(group_filter=f"{HOOKS}:returns"):
        (letter,) = await fleet.dead()
    assert letter["reason"].startswith(f"group group_filter {HOOKS}:returns returned 'nonsense'")


async def test_a_reward_that_fails_once_is_tried_again_without_generating_again(
    fleet: Fleet, engine: FakeEngine
) -> None:
    await fleet.configure(n=1)
    hooks.switches["return"] = None
    await fleet.submit("g")
    async with fleet.worker(reward=f"{HOOKS}:returns"):
        await until(lambda: fleet.stat("samples"))
        hooks.switches["return"] = 0.5
        (entry,) = await fleet.completed(1)
    assert json.loads(entry.fields["rewards"]) == [0.5]
    assert len(engine.requests) == 1


async def test_math_works_in_the_thread_of_a_hook() -> None:
    right = sample(0, text="It is \\boxed{\\frac{8}{2}}.")
    assert await scorer(reward="math", reward_timeout_seconds=30).score(PROMPT, right) == 1.0


async def test_a_group_reward_that_is_a_number_goes_beside_the_rewards(fleet: Fleet) -> None:
    await fleet.configure(n=2)
    hooks.switches["return"] = 7
    await fleet.submit("g")
    async with fleet.worker(group_reward=f"{HOOKS}:returns"):
        (entry,) = await fleet.completed(1)
    assert (entry.fields["rewards"], entry.fields["group_reward"]) == (b"[1.0, 1.0]", b"7.0")


async def test_a_group_reward_that_is_a_list_replaces_the_rewards(fleet: Fleet) -> None:
    await fleet.configure(n=2)
    hooks.switches["return"] = [1, 0.5]
    await fleet.submit("g")
    async with fleet.worker(group_reward=f"{HOOKS}:returns"):
        (entry,) = await fleet.completed(1)
    assert (entry.fields["rewards"], entry.fields["group_reward"]) == (b"[1.0, 0.5]", b"null")


async def test_a_group_that_the_filter_refuses_is_dropped_and_its_place_is_free(fleet: Fleet) -> None:
    await fleet.configure(n=2)
    await fleet.submit("odd", "even")
    async with fleet.worker(group_filter=f"{HOOKS}:drops_odd", slots=2):
        (entry,) = await fleet.completed(1)
        dropped = await fleet.stat("dropped:all equal")
    assert (entry.id, dropped, await fleet.stat("dead")) == ("even", 1, 0)


async def test_many_refusals_in_a_row_show_in_the_workers_facts(fleet: Fleet) -> None:
    await fleet.configure(n=1)
    await fleet.submit("odd", "odd-2", "odd-3")
    async with fleet.worker(group_filter=f"{HOOKS}:drops_odd"):
        await until(lambda: fleet.facts('"filter_refuses":3'))
    assert await fleet.stat("dropped") == 3


class RewardServer:
    """An HTTP reward service that can be taken away."""

    def __init__(self) -> None:
        self.status = 200
        self.answer: Any = {"reward": 0.75}
        self.asked: list[dict[str, Any]] = []
        self.url = ""

    async def score(self, http: web.Request) -> web.Response:
        self.asked.append(await http.json())
        return web.json_response(self.answer, status=self.status)


@pytest.fixture
async def service() -> AsyncIterator[RewardServer]:
    server, app = RewardServer(), web.Application()
    app.add_routes([web.post("/score", server.score)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/score"
    yield server
    await runner.cleanup()


async def test_an_http_reward_is_asked_with_the_prompt_and_the_answer(fleet: Fleet, service: RewardServer) -> None:
    await fleet.configure(n=1)
    await fleet.submit("g", metadata={"level": 3})
    async with fleet.worker(reward_url=service.url):
        (entry,) = await fleet.completed(1)
    (asked,) = service.asked
    assert entry.fields["rewards"] == b"[0.75]"
    assert (asked["id"], asked["label"], asked["metadata"]) == ("g", "4", {"level": 3})
    assert (asked["text"], asked["finish"], asked["ids"]) == ("#### 4", "stop", [[1, 2, 3]])


async def test_while_the_reward_service_is_away_nothing_is_claimed_and_no_attempt_is_counted(
    fleet: Fleet, service: RewardServer, engine: FakeEngine
) -> None:
    await fleet.configure(n=1, max_attempts=1)
    service.status = 503
    await fleet.submit("g")
    async with fleet.worker(reward_url=service.url, slots=1):
        await until(lambda: fleet.facts('"reward_down"'))
        await fleet.submit("h")
        tries = len(service.asked)
        await until(lambda: len(service.asked) >= tries + 2)
        claimed = await fleet.stat("claimed")
        service.status = 200
        entries = await fleet.completed(2)
    assert claimed == 1
    assert {entry.fields["attempts"] for entry in entries} == {b"1"}
    assert len(engine.requests) == 2


async def test_a_hook_says_that_its_service_is_away_by_a_connection_error(fleet: Fleet) -> None:
    await fleet.configure(n=1, max_attempts=1)
    hooks.switches["raise"] = ConnectionRefusedError("nobody there")
    await fleet.submit("g")
    async with fleet.worker(reward=f"{HOOKS}:raises", reward_tries=1):
        await until(lambda: fleet.facts('"reward_down"'))
        dead = await fleet.stat("dead")
    assert dead == 0
    await finish(fleet)


async def finish(fleet: Fleet) -> None:
    async with fleet.worker(pod="another"):
        await fleet.completed(1)


async def test_a_connection_error_below_what_an_http_library_raises_counts_as_away() -> None:
    fitness = Fitness()
    hooks.switches["raise"] = urllib.error.URLError(ConnectionRefusedError())
    away = scorer(fitness, reward=f"{HOOKS}:raises", reward_tries=1)
    waits = asyncio.create_task(away.score(PROMPT, sample(0)))
    await until(lambda: fitness.has("reward_down"))
    waits.cancel()
    assert away.is_away


async def test_a_reward_service_that_refuses_fails_the_group(fleet: Fleet, service: RewardServer) -> None:
    await fleet.configure(n=1, max_attempts=1)
    service.status = 422
    await fleet.submit_made("g")
    async with fleet.worker(reward_url=service.url, reward_tries=1):
        (letter,) = await fleet.dead()
    assert "answers 422" in letter["reason"]


@pytest.mark.parametrize(
    ("setting", "path", "words"),
    [
        ("reward", "no_such_module:f", "reward: can't load 'no_such_module:f'"),
        ("group_filter", f"{HOOKS}:nothing", "group_filter: can't load"),
        ("group_reward", f"{HOOKS}:switches", "is no function"),
        ("generate", f"{HOOKS}:not_async", "is no coroutine function"),
    ],
)
async def test_a_hook_that_can_not_be_used_is_a_wrong_setting(
    fleet: Fleet, setting: str, path: str, words: str
) -> None:
    await fleet.configure()
    with pytest.raises(WrongSetting, match=words.replace("(", r"\(")):
        async with fleet.worker(**{setting: path}) as worked:
            await worked.ended()


async def test_a_worker_without_a_reward_does_not_start_unless_the_trainer_scores(fleet: Fleet) -> None:
    await fleet.configure()
    with pytest.raises(WrongSetting, match="reward is empty"):
        async with fleet.worker(reward="") as worked:
            await worked.ended()


async def test_rewards_hold_no_slot(fleet: Fleet, engine: FakeEngine) -> None:
    await fleet.configure(n=1, refill="sample")
    engine.script = lambda _: said([1])
    await fleet.submit("g", "h", "i")
    async with fleet.worker(reward=f"{HOOKS}:blocks", slots=1):
        await until(lambda: len(engine.requests) == 3)
        hooks.release_blocked.set()
        await fleet.completed(3)
    assert engine.most_running == 1
