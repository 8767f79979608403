"""A NATS server with JetStream inside the process, for tests and simulation: no socket, no thread, no file.

``MemoryServer`` is the server; ``Connection.open("memory://<name>")`` reaches it, and everything above that (nats-py's
client included) runs unchanged. It speaks the protocol of the real one and keeps what the real one keeps, as far as
Tenure asks for it; the contract suite runs on both, and where they differ the real one is right.

Everything of one server lives on one event loop and takes the time from it (``loop.time``, ``call_later``) and from one
wall clock that is given to it: so it runs in real time and in virtual time alike. It has no randomness and no order but
that of what happened: the same messages at the same times give the same answers.

``broker`` knows who listens, ``peer`` is the server's end of a connection, ``transport`` the client's; ``stream`` stores,
``publish`` decides what may be stored, ``consumer`` delivers, ``schedules`` fires, ``api`` answers ``$JS.API``.
"""

from tenure.nats.memory.link import PROMPT, Link
from tenure.nats.memory.server import MemoryServer

__all__ = ["PROMPT", "Link", "MemoryServer"]
