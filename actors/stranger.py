"""Example: a program that has no Tenure, and submits tasks by nothing but NATS, JSON and a few headers.

In any language; here with nats-py, for a worker with `actors.documents:app` and a supervisor with the same code::

    tenure dev actors.documents:app
    python -m actors.stranger docs extract '{"path": "README.md"}' readme

What it shows:

* **`publish`**: durable. The acknowledgement means that the command is kept and will be applied once, also if no supervisor runs at
  the moment. A rejection, seconds later perhaps, is told on the subject in `Tenure-Reply`, and kept: `tenure dead rejected`.
* **`ask`**: the same as a request, answered with key, generation and phase, or with an error code and a text.
* **`Nats-Msg-Id`**: who does not know whether its publish has arrived publishes it again, with the same id.
"""

import asyncio
import json
import sys
import uuid
from typing import Any

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg


class Rejected(Exception):
    """The command was not carried out; `code` does not change between releases."""

    def __init__(self, code: str, text: str) -> None:
        self.code = code
        super().__init__(f"{code}: {text}")


async def publish(
    client: Client, namespace: str, actor: str, arguments: dict[str, Any], key: str
) -> asyncio.Future[None]:
    """Submit; what is returned raises `Rejected` once the command is known to be. No news is good news."""
    told: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def on_rejection(msg: Msg) -> None:
        if not told.done():
            told.set_exception(Rejected(**{"code": "", **_said(msg)}))

    reply = client.new_inbox()
    await client.subscribe(reply, cb=on_rejection)
    headers = {"Tenure-Key": key, "Tenure-Reply": reply, "Nats-Msg-Id": uuid.uuid4().hex}
    await client.jetstream().publish(
        f"tenure.{namespace}.submit.{actor}", json.dumps(arguments).encode(), headers=headers
    )
    return told


async def ask(client: Client, namespace: str, actor: str, arguments: dict[str, Any], key: str) -> dict[str, Any]:
    """Submit, and hear at once what became of it. Raises `Rejected`."""
    subject = f"tenure.{namespace}.api.submit.{actor}"
    msg = await client.request(subject, json.dumps(arguments).encode(), timeout=5, headers={"Tenure-Key": key})
    said: dict[str, Any] = json.loads(msg.data)
    if "error" in said:
        raise Rejected(**_said(msg))
    return said


def _said(msg: Msg) -> dict[str, str]:
    said = json.loads(msg.data)
    return {"code": said["error"], "text": said["text"]}


async def main(namespace: str, actor: str, arguments: str, key: str, url: str = "nats://127.0.0.1:4222") -> None:
    """Submit one task, and print how it stands."""
    async with await nats.connect(url) as client:
        said = await ask(client, namespace, actor, json.loads(arguments), key)
    sys.stdout.write(json.dumps(said) + "\n")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
