"""The app: a namespace, its actors, and the doors to everything else."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from msgspec.structs import replace as with_changes

from tenure.actors import Actor, check_autostart, check_function, module_of
from tenure.client import Client
from tenure.config import Config
from tenure.context import Context
from tenure.core.errors import ConfigError
from tenure.core.given import whole
from tenure.core.records import CatchUp, Overlap
from tenure.core.subjects import Names, check_name
from tenure.encryption import Encryption
from tenure.encryption import given as encryption_given
from tenure.hooks import AskedHooks, make_hooks
from tenure.isolation import Isolation, home_of
from tenure.nats.options import check_options
from tenure.rates import AnyLimit
from tenure.settings import Retry, Seconds, make_policy, make_task, with_schedule
from tenure.stores import Stores
from tenure.times import deployed_time

if TYPE_CHECKING:
    from tenure.supervisor import Supervisor
    from tenure.worker import Worker

P = ParamSpec("P")
R = TypeVar("R")

DEFAULT_URL = "nats://127.0.0.1:4222"
_ONE_DAY = timedelta(days=1)


def default_url() -> str:
    """``$TENURE_NATS_URL``, else ``nats://127.0.0.1:4222``."""
    return os.environ.get("TENURE_NATS_URL") or DEFAULT_URL


class Register(Protocol):
    """What ``@app.actor(...)`` is: takes a function, with or without a first ``Context`` parameter, plain or async."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /
    ) -> Actor[Concatenate[Context, P], P, Coroutine[Any, Any, R], R]: ...
    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Actor[P, P, Coroutine[Any, Any, R], R]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, P], R], /
    ) -> Actor[Concatenate[Context, P], P, R, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Actor[P, P, R, R]: ...


class App:
    """A namespace of durable tasks.

    ``namespace``: letters, digits, ``-`` and ``_``; everything on the server carries it. ``config``: numbers, see
    ``Config``. ``deployed``: when this release was deployed, an aware time that is the same in all its processes; default
    ``$TENURE_DEPLOYED``, else each process's start. Of two processes whose code differs in a schedule, limit or rate, the one
    of the later deployment decides. ``encryption``: the keys to encrypt with what is stored of arguments, results and the like;
    default: those of ``$TENURE_ENCRYPTION_KEYS``, if it is set. Raises ConfigError.
    """

    def __init__(
        self,
        namespace: str,
        *,
        config: Config | None = None,
        deployed: datetime | None = None,
        encryption: Encryption | None = None,
    ) -> None:
        self.names = Names(namespace)
        self.namespace = self.names.namespace
        given: object = config
        if given is not None and not isinstance(given, Config):
            msg = f"app {namespace}: config must be a tenure.Config, e.g. Config(drain_seconds=60), or None, got {config!r}"
            raise ConfigError(msg)
        self.config = Config() if config is None else config
        self._deployed = deployed_time(deployed)
        self.encryption = encryption_given(encryption, namespace)
        self.actors: dict[str, Actor[..., ..., Any, Any]] = {}

    def deployed_at(self, started: float) -> float:
        """When the code of a process was deployed that was ``started`` then: no later than that. Seconds since the epoch."""
        return started if self._deployed is None else min(self._deployed, started)

    def __repr__(self) -> str:
        return f"<App {self.namespace}: {', '.join(self.actors) or 'no actors'}>"

    @overload
    def actor(
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /
    ) -> Actor[Concatenate[Context, P], P, Coroutine[Any, Any, R], R]: ...
    @overload
    def actor(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Actor[P, P, Coroutine[Any, Any, R], R]: ...
    @overload
    def actor(self, function: Callable[Concatenate[Context, P], R], /) -> Actor[Concatenate[Context, P], P, R, R]: ...
    @overload
    def actor(self, function: Callable[P, R], /) -> Actor[P, P, R, R]: ...
    @overload
    def actor(
        self,
        *,
        name: str | None = None,
        queue: str = "default",
        priority: str = "normal",
        timeout: Seconds | None = None,
        grace: Seconds = 10.0,
        retry: Retry | None = Retry(),  # noqa: B008  (frozen: a shared default cannot change)
        every: Seconds | None = None,
        cron: str | None = None,
        tz: str = "UTC",
        catch_up: CatchUp = "none",
        autostart: bool = False,
        limits: Sequence[AnyLimit] = (),
        overlap: Overlap = "stop",
        isolation: Isolation = "thread",
        result_ttl: Seconds = _ONE_DAY,
        on_success: AskedHooks = None,
        on_failure: AskedHooks = None,
        on_cancel: AskedHooks = None,
    ) -> Register: ...
    def actor(  # type: ignore[misc]  # mypy mistakes the positional-only parameter of signature 5
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        queue: str = "default",
        priority: str = "normal",
        timeout: Seconds | None = None,
        grace: Seconds = 10.0,
        retry: Retry | None = Retry(),  # noqa: B008  (frozen: a shared default cannot change)
        every: Seconds | None = None,
        cron: str | None = None,
        tz: str = "UTC",
        catch_up: CatchUp = "none",
        autostart: bool = False,
        limits: Sequence[AnyLimit] = (),
        overlap: Overlap = "stop",
        isolation: Isolation = "thread",
        result_ttl: Seconds = _ONE_DAY,
        on_success: AskedHooks = None,
        on_failure: AskedHooks = None,
        on_cancel: AskedHooks = None,
    ) -> Any:
        """Register a function as an actor, as ``@app.actor`` or ``@app.actor(...)``.

        ``name``: default the function's. ``queue`` and ``priority`` (high, normal, low): where its runs wait. ``timeout`` seconds
        an attempt may take (None: no limit). ``grace`` seconds a body may take to end once told to stop. ``retry``: default five
        attempts; None: one. ``every``: perpetual, each run schedules the next. ``cron``: perpetual, by a cron expression of five
        fields (six: seconds first) in the IANA time zone ``tz``, with Debian's rules for summer time; the first run is its next
        fire. ``catch_up``: of fires missed while nothing ran, ``none`` is made up for, ``one`` for all of them, or ``all``.
        ``autostart``: supervisors keep one chain of it alive under the actor's name as the key, with the schedule of the code that
        was started last. ``limits``: how many bodies run at once (``Limit``) or start in a window (``RateLimit``), which submits
        make one run (``Debounce``) or none (``Cooldown``). ``overlap``: for submits over a run that is stopping; fires of a schedule
        never overlap but go by ``catch_up``: no ``parallel``. ``result_ttl``: how long a finished key is kept (whole seconds; 0 is the
        shortest that the server can, one). ``isolation``: ``process`` runs its bodies in child processes, which can be killed; it must
        be at the top of an importable module. ``on_success``, ``on_failure`` (for good) and ``on_cancel``: calls, or actors that are
        given the ``Outcome``, submitted exactly once if and only if that outcome was stored. Raises ConfigError.
        """
        scope = _caller_scope()

        def register(function: Callable[..., Any]) -> Actor[..., ..., Any, Any]:
            chosen = self._new_name(function, name)
            policy = make_policy(
                chosen, retry=retry, timeout=timeout, grace=grace, overlap=overlap, result_ttl=result_ttl
            )
            home = module_of(function) if autostart else ""
            policy = with_schedule(chosen, policy, every=every, cron=cron, tz=tz, catch_up=catch_up, autostart=home)
            named = {"on_success": on_success, "on_failure": on_failure, "on_cancel": on_cancel}
            policy = with_changes(policy, hooks=make_hooks(chosen, self.namespace, **named))
            made: Actor[..., ..., Any, Any] = Actor(
                function, chosen, make_task(chosen, queue, priority, policy), scope, self.namespace
            )
            made.limit(limits)
            made.home = home_of(self, function, chosen, isolation)
            check_autostart(made)
            self.actors[chosen] = made
            return made

        return register if function is None else register(function)

    def _new_name(self, function: Callable[..., Any], name: str | None) -> str:
        check_function(function)
        chosen = check_name("actor", getattr(function, "__name__", "") if name is None else name)
        if chosen in self.actors:
            msg = f"actor {chosen!r} is registered twice in app {self.namespace!r}: give one of them a name="
            raise ConfigError(msg)
        return chosen

    async def open_stores(self, url: str, name: str, options: dict[str, Any]) -> Stores:
        """The stores of its namespace, over a connection of this name. Raises Unavailable or ConfigError."""
        return await Stores.open(url, self.names, self.config, name=name, sealer=self.encryption, **options)

    def connect(self, url: str | None = None, **options: Any) -> Client:
        """A client, to be used as ``async with app.connect() as client``.

        ``url``: default ``$TENURE_NATS_URL``, else ``nats://127.0.0.1:4222``; several separated by commas. ``options``
        go to nats-py (``tls``, ``user_credentials``, ``token``, ...).
        """
        return Client(self, _checked(url), check_options("connect", options))

    def worker(
        self,
        url: str | None = None,
        *,
        queues: Iterable[str] | Mapping[str, int] | None = None,
        concurrency: int = 100,
        **options: Any,
    ) -> Worker:
        """A worker, to be used as ``async with app.worker() as worker: await worker.run()``.

        ``queues``: default those of the app's actors; with weights, ``{"default": 3, "bulk": 1}``, their slots go 3 : 1 while
        both have work. ``concurrency``: bodies at once. Raises ConfigError.
        """
        from tenure.worker import Worker

        slots = whole(concurrency)
        if slots is None or slots < 1:
            msg = f"concurrency must be a whole number >= 1, got {concurrency!r}"
            raise ConfigError(msg)
        used = sorted({actor.task.queue for actor in self.actors.values()} or {"default"})
        options = check_options("worker", options, "queues", "concurrency")
        chosen = used if queues is None else queues
        return Worker(self, _checked(url), queues=chosen, concurrency=slots, options=options)

    def supervisor(self, url: str | None = None, **options: Any) -> Supervisor:
        """A supervisor, to be used as ``async with app.supervisor() as supervisor: await supervisor.run()``.

        Any number may run; at least one should, on another machine than a worker's. It needs no actor's code.
        """
        from tenure.supervisor import Supervisor

        return Supervisor(self, _checked(url), options=check_options("supervisor", options))


def _checked(url: object) -> str:
    if url is not None and not isinstance(url, str):
        msg = (
            f"url must be a str such as {DEFAULT_URL!r}, several servers separated by commas, got {type(url).__name__}"
        )
        raise ConfigError(msg)
    return url or default_url()


def _caller_scope() -> dict[str, Any]:
    """Names of the function that calls ``@app.actor``.

    So that annotations may name what is defined beside the actor.
    """
    frame = inspect.currentframe()
    caller = frame.f_back.f_back if frame is not None and frame.f_back is not None else None
    return dict(caller.f_locals) if caller is not None else {}
