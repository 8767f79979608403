"""Seeds: each is run in a process of its own, forked from one that has everything loaded, so that all begin alike."""

from __future__ import annotations

import gc
import multiprocessing
import os
import sys
import time
import traceback
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait

from msgspec import Struct

from tenure.nats.memory import transport as _transport  # noqa: F401  (loaded before the forks)
from tests.history.checker import check
from tests.history.evidence import Evidence, Violation
from tests.sim.faults import Mixture
from tests.sim.loop import SimLoop, Stalled
from tests.sim.machine import pretend
from tests.sim.mutants import MUTANTS
from tests.sim.nemesis import Nemesis
from tests.sim.world import Size, World, silence

_CONTEXT = multiprocessing.get_context("fork")
_monotonic, _wall = time.process_time, time.perf_counter


class Result(Struct, frozen=True, kw_only=True):
    """What came of a seed. ``digest``: of its whole trace; ``real_seconds``: of a processor; ``keys``: the producers' own (``k7``)."""

    seed: int
    violations: list[Violation]
    failures: list[str]
    virtual_seconds: float = 0.0
    real_seconds: float = 0.0
    wall_seconds: float = 0.0
    keys: int = 0
    steps: int = 0
    bodies: int = 0
    asks: int = 0
    deaths: int = 0
    fenced: int = 0
    digest: int = 0
    trace: list[str] = []
    mixture: Mixture = Mixture()

    @property
    def good(self) -> bool:
        """Whether nothing was found."""
        return not self.violations and not self.failures


def with_fixed_hashes() -> None:
    """Start this interpreter again if the order of its sets depends on chance."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606  (ourselves, with the same arguments)


def run_seed(seed: int, size: Size, *, mixture: Mixture | None = None, whole_trace: bool = False) -> Result:
    """Run one seed here. This process is of no use for anything else afterwards."""
    began, wall_began = _monotonic(), _wall()
    gc.freeze()
    gc.disable()
    loop = SimLoop()
    world = World(loop, seed, size, mixture)
    pretend(loop, world.write)
    loop.set_exception_handler(lambda _loop, context: world.failures.append(f"unhandled: {context}"))
    evidence: Evidence | None = None
    try:
        evidence = loop.run_until_complete(world.run(Nemesis(world).run()))
    except Stalled as stalled:
        world.failures.append(str(stalled))
    except Exception:  # noqa: BLE001  (whatever it is: it is told with its seed)
        world.failures.append(traceback.format_exc())
    violations = check(evidence) if evidence is not None else []
    wrong = bool(violations or world.failures)
    keys = {violation.key for violation in violations} - {""} or None
    return Result(
        seed=seed,
        violations=violations,
        failures=world.failures,
        virtual_seconds=loop.time(),
        real_seconds=_monotonic() - began,
        wall_seconds=_wall() - wall_began,
        keys=len({r.key for r in evidence.revisions if r.key[0] == "k" and r.key[1:].isdigit()}) if evidence else 0,
        steps=loop.steps,
        bodies=len(evidence.bodies) // 2 if evidence else 0,
        asks=len(evidence.asks) // 2 if evidence else 0,
        deaths=len(evidence.deaths) if evidence else 0,
        fenced=sum(evidence.counts.fenced.values()) if evidence is not None else 0,
        digest=world.trace.digest(),
        trace=world.trace.text(None if whole_trace else keys) if wrong or whole_trace else [],
        mixture=world.mixture,
    )


def run_seeds(
    seeds: list[int],
    size: Size,
    *,
    at_once: int = 2,
    mixture: Mixture | None = None,
    mutant: str = "",
    whole_trace: bool = False,
) -> Iterator[Result]:
    """Run each in a fork of this process, so many at once; results as they come. ``mutant``: without that guard."""
    todo = iter(seeds)
    running: dict[Connection, tuple[int, multiprocessing.process.BaseProcess]] = {}

    def more() -> None:
        seed = next(todo, None)
        if seed is None:
            return
        ours, theirs = _CONTEXT.Pipe(duplex=False)
        process = _CONTEXT.Process(target=_child, args=(theirs, seed, size, mixture, mutant, whole_trace), daemon=True)
        process.start()
        theirs.close()
        running[ours] = seed, process

    for _ in range(at_once):
        more()
    while running:
        for pipe in wait(list(running)):
            assert isinstance(pipe, Connection)
            seed, process = running.pop(pipe)
            try:
                yield pipe.recv()
            except EOFError:
                process.join()
                yield Result(seed=seed, violations=[], failures=[f"its process ended with {process.exitcode}"])
            process.join()
            more()


def _child(pipe: Connection, seed: int, size: Size, mixture: Mixture | None, mutant: str, whole_trace: bool) -> None:
    silence()
    if mutant:
        MUTANTS[mutant]()
    pipe.send(run_seed(seed, size, mixture=mixture, whole_trace=whole_trace))
    pipe.close()
    os._exit(0)  # nothing of a world is worth being taken down in order
