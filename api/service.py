"""What the routes are given: the parts of the process, and the questions that every route asks of them."""

import asyncio
import hmac
from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated, cast

from fastapi import Depends, Path, Request

from api.audit import Audit
from api.models import RunStatus
from api.publisher import Publisher
from api.refusals import ActionsOff, BrokerAway, RunUnknown, Unauthorised
from api.sampler import RunBook, Sampler
from api.settings import ApiSettings
from rolloutfleet.broker import Broker
from rolloutfleet.errors import BrokerUnavailable
from rolloutfleet.keys import RUN_NAME
from rolloutfleet.redis import Client

RunName = Annotated[
    str, Path(description="Name of the run.", examples=["math"], max_length=256, pattern=f"^{RUN_NAME.pattern}$")
]


@dataclass(frozen=True, slots=True)
class Service:
    """The parts, wired by `create_app`. `client` is the process's one Redis client."""

    settings: ApiSettings
    client: Client
    sampler: Sampler
    publisher: Publisher
    audit: Audit = field(default_factory=Audit)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None, None]:
        """Looks and publishes in the background of the block; closes the client at its end."""
        async with self.client, self.sampler.running(), self.publisher.running():
            yield

    async def book(self, run: str) -> RunBook:
        """Errors: RunUnknown with the known names; BrokerAway where Redis can't be asked."""
        found = self.sampler.books.get(run) or await self.asked(self.sampler.find(run))
        if found is None:
            raise RunUnknown(run, sorted(self.sampler.books))
        return found

    async def run(self, run: str) -> RunStatus:
        """A run as the snapshot has it, or newer. Errors: RunUnknown, BrokerAway."""
        book = await self.book(run)
        found = self.publisher.snapshot.run(run) or self.publisher.run_now(book)
        if found is None:
            raise BrokerAway(book.problem or f"run {run!r} was not read yet: ask again in a second")
        return found

    async def broker(self, run: str) -> Broker:
        """A broker to ask directly. Errors: RunUnknown, BrokerAway."""
        return (await self.book(run)).broker

    async def asked[T](self, question: Awaitable[T]) -> T:
        """An answer of Redis within `redis_seconds`. Errors: BrokerAway."""
        try:
            async with asyncio.timeout(self.settings.redis_seconds):
                return await question
        except TimeoutError:
            seconds = self.settings.redis_seconds
            raise BrokerAway(f"Redis did not answer within {seconds:g} s; whether it acted is unknown") from None
        except BrokerUnavailable as error:
            raise BrokerAway(str(error)) from error

    def check_token(self, given: str | None) -> None:
        """Errors: ActionsOff where none is configured, Unauthorised for a wrong one."""
        expected = self.settings.token.get_secret_value()
        if not expected:
            raise ActionsOff
        if given is None or not hmac.compare_digest(given.encode(), expected.encode()):
            raise Unauthorised


def service_of(request: Request) -> Service:
    return cast(Service, request.app.state.service)


ServiceOf = Annotated[Service, Depends(service_of)]
