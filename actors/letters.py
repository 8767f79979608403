"""Example: a letter to many, and what whoever is on duty does when something is wrong with it.

    tenure worker actors.letters:app --with-supervisor

Every Monday at eight `issue` has one `send` run for each subscriber, under `issue-7/ada@example.org`. Letters end in a Maildir
(`$LETTERS_FOLDER/new`), from where a mail server takes them. Then it is Monday:

    await client.trigger("issue")                                    # not at eight but now, and next Monday all the same
    tenure trigger issue -n letters

    hold = await client.pause(queue="letters", duration=1800.0, reason="the mail server is down")
    tenure pause letters --queue --for 30m --reason 'the mail server is down' -n letters

    await client.block("issue-*@example.org", reason="they do not take our mail")
    tenure block 'issue-*@example.org' --reason 'they do not take our mail' -n letters

    await client.block(actor="send", where=[Where("number", "<", 7)], reason="out of date")
    tenure block --actor send --where 'number < 7' --reason 'out of date' -n letters

    await recall(client, 7, "the wrong text")                        # below: what was not sent yet is not sent
    tenure cancel --pattern 'issue-7/*' --dry-run -n letters         # counts only; without --dry-run it cancels

    await client.resume(queue="letters")                             # what waited starts, in the order of its submits
    tenure blocks -n letters                                         # what is still held back, since when, why, how many wait

What it shows:

* **Exactly one run for each letter.** `ctx.spawn` stores them with the outcome of `issue`: all, or none and it is tried again.
* **Holding back loses nothing.** What runs goes on, what is submitted waits; every worker knows within milliseconds, and after
  a restart too. A pause is of a queue or an actor; a block of keys by a pattern, or of runs by their arguments.
* **A cancel of many is a cancel of each.** One that has begun is told to stop and ends cancelled; the counts say how many of each.
* **A body runs at least once**, so it notes what it has done: a letter that has gone out goes out again only if a worker dies
  between the writing and the note.
"""

import os
from email.message import EmailMessage
from pathlib import Path

from tenure import App, CancelledMany, Client, Context, Retry

app = App("letters")


def folder() -> Path:
    """`$LETTERS_FOLDER`, default `letters`: `subscribers.txt` with an address in each line, `issue-<number>.txt`, `new`, `sent`."""
    return Path(os.environ.get("LETTERS_FOLDER", "letters"))


@app.actor(cron="0 8 * * MON", tz="Europe/Berlin", catch_up="one", autostart=True)
def issue(ctx: Context) -> int:
    """Send the newest issue to all subscribers who have not got it; how many subscribers there are."""
    numbers = [int(file.stem.partition("-")[2]) for file in folder().glob("issue-*.txt")]
    if not numbers:
        return 0
    everybody = (folder() / "subscribers.txt").read_text(encoding="utf-8").split()
    for address in everybody:
        ctx.spawn(send.call(max(numbers), address), key=f"issue-{max(numbers)}/{address}")
    return len(everybody)


@app.actor(queue="letters", retry=Retry(max_attempts=8, initial=1.0, maximum=600.0, factor=4.0, jitter=0.2))
def send(ctx: Context, number: int, address: str) -> bool:
    """Write one letter to where the mail server takes it from; False if it has gone out before."""
    letter = EmailMessage()
    letter["To"] = address
    letter["Subject"] = f"Issue {number}"
    letter.set_content((folder() / f"issue-{number}.txt").read_text(encoding="utf-8"))
    name = ctx.key.replace("/", "-")
    part, new, sent = (folder() / place / name for place in ("tmp", "new", "sent"))
    if sent.exists():
        return False
    for file in (part, new, sent):
        file.parent.mkdir(exist_ok=True)
    part.write_bytes(bytes(letter))
    part.replace(new)  # half a letter is never in `new`
    sent.touch()
    return True


async def recall(client: Client, number: int, reason: str) -> CancelledMany:
    """Send no more of an issue; how many letters did not go out. None starts while they are cancelled."""
    letters = f"issue-{number}/*"
    await client.block(letters, reason=reason)
    try:
        return await client.cancel_many(letters, reason=reason)
    finally:
        await client.unblock(letters)
