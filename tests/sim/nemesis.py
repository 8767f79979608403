"""The nemesis of a simulation: does harm by its mixture for so many seconds, and has put everything right when it ends."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from tenure.nats.memory.peer import Peer
from tests.history.evidence import Fault
from tests.sim.loop import Process, process_of
from tests.sim.world import Program, World

_DOWN_SECONDS = (0.05, 0.5, 2.0, 6.0)
_FROZEN_SECONDS = (0.2, 1.0, 3.5, 9.0)
_JUMPS = (0.4, -0.4, 5.0, -5.0, 3_600.0, -3_600.0)
_LONGEST_FUSE = 80
_AT_ONCE = 0.4
"""Of all harm but kills of processes: done when nobody has anything to do but wait. The rest comes between two steps."""


class Nemesis:
    """The harm done to one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = random.Random(world.chance.random())
        self._until = 0.0

    async def run(self) -> None:
        """Do harm until it is over."""
        world, mixture = self._world, self._world.mixture
        self._until = world.loop.time() + world.size.seconds
        async with asyncio.TaskGroup() as self._thaws:
            await asyncio.gather(
                *(
                    self._again_and_again(every, harm)
                    for every, harm in (
                        (mixture.cut, self._cut),
                        (mixture.server_kill, self._server_kill),
                        (mixture.server_pause, self._server_pause),
                        (mixture.kill, self._kill),
                        (mixture.freeze, self._freeze),
                        (mixture.term, self._term),
                        (mixture.clock_jump, self._jump),
                    )
                    if every
                ),
                asyncio.sleep(world.size.seconds),  # paused: so long things go wrong
            )
            world.server.fuses.put_out()
            for program in world.programs.values():
                program.process.fuses.put_out()

    async def _again_and_again(self, every: float, harm: Callable[[], Awaitable[None]]) -> None:
        while True:
            pause = self._chance.expovariate(1.0 / every)
            if self._world.loop.time() + pause >= self._until:
                return
            await asyncio.sleep(pause)  # paused: until the next one
            await harm()

    def _victim(self) -> Program | None:
        alive = [program for program in self._world.programs.values() if program.process.alive]
        return self._chance.choice(alive) if alive else None

    def _soon(self, process: Process | None, harm: Callable[[], None]) -> None:
        """At once, or before one of its next steps: which one is chance, be it between a read and the write that follows."""
        if process is None or self._chance.random() < _AT_ONCE:
            harm()
        else:
            process.fuses.light(self._chance.randrange(1, _LONGEST_FUSE), harm)

    async def _cut(self) -> None:
        peers = list(self._world.server.peers.values())
        peers = [peer for peer in peers if peer.name != "observer"]
        if peers:
            peer = self._chance.choice(peers)
            self._soon(process_of(peer.context), lambda: self._cut_now(peer))

    def _cut_now(self, peer: Peer) -> None:
        self._world.trace.note(f"cut {peer.name}")
        peer.cut()

    async def _server_kill(self) -> None:
        seconds = self._chance.choice(_DOWN_SECONDS)
        self._at_the_server(lambda: self._server_kill_now(seconds))

    def _server_kill_now(self, seconds: float) -> None:
        server = self._world.server
        if server.running:
            self._world.trace.note("server killed")
            server.kill()
            self._thaws.create_task(self._server_start(seconds))

    async def _server_start(self, seconds: float) -> None:
        await asyncio.sleep(seconds)  # paused: it is down
        self._world.server.start()
        self._world.trace.note("server started")

    async def _server_pause(self) -> None:
        seconds = self._chance.choice(_FROZEN_SECONDS)
        self._at_the_server(lambda: self._server_pause_now(seconds))

    def _server_pause_now(self, seconds: float) -> None:
        server = self._world.server
        if server.running:
            self._world.trace.note("server paused")
            server.pause()
            self._thaws.create_task(self._server_resume(seconds))

    async def _server_resume(self, seconds: float) -> None:
        await asyncio.sleep(seconds)  # paused: so is it
        self._world.server.resume()
        self._world.trace.note("server resumed")

    def _at_the_server(self, harm: Callable[[], None]) -> None:
        """At once, or before a step of some process, or in the middle of what the server does with a message."""
        dice, steps = self._chance.random(), self._chance.randrange(1, _LONGEST_FUSE)
        victim = self._victim()
        if dice < _AT_ONCE or victim is None:
            harm()
        elif dice < (1 + _AT_ONCE) / 2:
            victim.process.fuses.light(steps, harm)
        else:
            self._world.server.fuses.light(steps, harm)

    async def _kill(self) -> None:
        program = self._victim()
        if program is not None:
            program.process.fuses.light(self._chance.randrange(1, _LONGEST_FUSE), program.process.kill)

    async def _freeze(self) -> None:
        program = self._victim()
        if program is not None:
            seconds = self._chance.choice(_FROZEN_SECONDS)
            self._soon(program.process, lambda: self._freeze_now(program, seconds))

    def _freeze_now(self, program: Program, seconds: float) -> None:
        self._world.trace.note(f"{program.name} frozen")
        program.process.freeze()
        self._thaws.create_task(self._thaw(program, self._world.loop.time(), seconds))

    async def _thaw(self, program: Program, at: float, seconds: float) -> None:
        await asyncio.sleep(seconds)  # paused: so is it
        program.process.thaw()
        until, pid = self._world.loop.time(), program.process.pid
        self._world.frozen.append(Fault(kind="freeze", target=program.name, at=at, until=until, pid=pid))
        self._world.trace.note(f"{program.name} thawed")

    async def _term(self) -> None:
        program = self._victim()
        if program is not None and program.role not in {"producer", "stranger"}:
            self._soon(program.process, lambda: self._term_now(program))

    def _term_now(self, program: Program) -> None:
        if not program.stopping:
            self._world.trace.note(f"{program.name} told to stop")
            self._world.stop(program)

    async def _jump(self) -> None:
        program = self._victim()
        if program is not None:
            seconds = self._chance.choice(_JUMPS)
            self._soon(program.process, lambda: self._jump_now(program, seconds))

    def _jump_now(self, program: Program, seconds: float) -> None:
        self._world.trace.note(f"{program.name}'s time of day jumps by {seconds} s")
        program.clock.ahead += seconds
