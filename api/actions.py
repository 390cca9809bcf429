"""What an operator can do to a run. Each step may be repeated without harm; the answer says what changed."""

from collections import Counter
from collections.abc import Sequence

from api.bodies import Done, Letters, WindowChange
from rolloutfleet.broker import Broker
from rolloutfleet.reading import read_dead
from rolloutfleet.settings import RunConfig

_PAGE = 100  # letters are read whole, a bounded number at a time


async def pause(broker: Broker) -> Done:
    await broker.pause()
    return _done(broker, "pause", 1, "paused: nothing is claimed any more, what is held goes on")


async def resume(broker: Broker) -> Done:
    await broker.resume()
    return _done(broker, "resume", 1, "resumed: groups are claimed again")


async def change_window(broker: Broker, change: WindowChange) -> Done:
    """Errors: pydantic.ValidationError where a setting doesn't fit those that stay."""
    given = change.given()
    await broker.configure(RunConfig.model_validate(given))
    told = ", ".join(f"{name} = {value}" for name, value in given.items())
    return _done(broker, "window", len(given), f"set: {told}")


async def drain(broker: Broker, workers: Sequence[str]) -> Done:
    changed = await broker.drain(workers)
    return _done(broker, "drain", changed, f"{changed} of {len(workers)} were not draining before: they claim no more")


async def undrain(broker: Broker, workers: Sequence[str]) -> Done:
    changed = await broker.undrain(workers)
    return _done(broker, "undrain", changed, f"{changed} of {len(workers)} were draining: they claim again")


async def requeue(broker: Broker, letters: Letters) -> Done:
    """Gives letters another life. With `all`, those that are there now."""
    words: Counter[str] = Counter()
    if letters.all:
        before = "+"
        while page := await read_dead(broker, _PAGE, before):
            words.update(await broker.requeue_dead([letter.entry for letter in page]))
            before = f"({page[-1].entry}"
    else:
        words.update(await broker.requeue_dead(letters.entries))
    told = ", ".join(f"{number} {word}" for word, number in sorted(words.items())) or "there was none"
    done = _done(broker, "requeue", words["ok"], f"requeued: {told}")
    return done.model_copy(update={"results": dict(words)})


async def drop(broker: Broker, letters: Letters) -> Done:
    """Forgets letters. Their ids stay over: a duplicate is refused as before. With `all`, those that are there now."""
    key = broker.keys.named("dead")
    if letters.all:
        newest = await read_dead(broker, 1)
        first, second = newest[0].entry.split("-") if newest else ("0", "0")
        command = ["XTRIM", key, "MINID", f"{first}-{int(second) + 1}"]
    else:
        command = ["XDEL", key, *letters.entries]
    (dropped,) = await broker.calls.read([command])
    return _done(broker, "drop", int(dropped), f"{dropped} dead letters are forgotten")


def _done(broker: Broker, action: str, changed: int, sentence: str) -> Done:
    return Done(action=action, run=broker.keys.run, changed=changed, sentence=sentence)
