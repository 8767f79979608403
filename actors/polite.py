"""Example: mail that nobody is annoyed by, a search index that keeps up with a writer, and a report that is made once an hour.

What each shows, in `limits=[...]` beside `Limit`:

* **`RateLimit`**, `send`: no customer gets more than five mails in a minute, and the mail server no more than a hundred in a
  second, however many workers there are. What is too much waits, in the order in which it came, and holds no slot meanwhile.
* **`RateLimit(..., excess="drop")`**, `remind`: a second reminder within a day is not wanted a day later. It ends cancelled, and
  whoever waits for it is told why (`RunCancelled.reason`).
* **`Debounce`**, `index`: a document that is saved again and again is indexed once, as it was saved last, two seconds after
  that; and every half minute at least while its writer does not stop. Submit it under the document's name::

      await client.submit(index.call("notes.md", text), key="index-notes.md")

* **`Cooldown`**, `report`: whoever asks within an hour after the report was made gets that one (`run.accepted` is False)::

      run = await client.submit(report.call("north"), key="report-north")
      text = await run.result()
"""

from datetime import UTC, datetime, timedelta

from msgspec import Struct

from tenure import App, Cooldown, Debounce, RateLimit

app = App("polite")


class Sent(Struct):
    """A mail that was handed to the mail server, here: to a list."""

    at: datetime
    customer: str
    text: str


outbox: list[Sent] = []
words: dict[str, int] = {}


@app.actor(limits=[RateLimit(5, timedelta(minutes=1), per="customer"), RateLimit(100, 1)])
async def send(customer: str, text: str) -> None:
    """Send a mail. Retries count as well: what an attempt has sent before it failed was a mail."""
    outbox.append(Sent(datetime.now(UTC), customer, text))


@app.actor(limits=[RateLimit(1, timedelta(days=1), per="customer", excess="drop")])
async def remind(customer: str) -> None:
    """Remind a customer, once a day whoever asks for it and how often."""
    outbox.append(Sent(datetime.now(UTC), customer, "Your document is still waiting for you."))


@app.actor(limits=[Debounce(settle=2.0, max_wait=30.0)])
async def index(name: str, text: str) -> int:
    """Index a document as it was saved last: how many words it has."""
    words[name] = len(text.split())
    return words[name]


@app.actor(limits=[Cooldown(timedelta(hours=1))])
async def report(region: str) -> str:
    """How many mails have been sent. Asked for again within an hour, the same report is the answer."""
    return f"{region}: {len(outbox)} mails by {datetime.now(UTC):%H:%M:%S.%f}"
