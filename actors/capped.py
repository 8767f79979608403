"""Example: a polite client of other people's servers, two requests to one site at once and ten in all.

However many workers there are, and whatever happens to them::

    tenure submit actors.capped:app fetch --arg site=https://example.org --arg path=/robots.txt --wait

    async with app.connect() as client:
        calls = [(fetch.call("https://example.org", path), path) for path in paths]
        runs = await client.submit_many(calls)

What it shows:

* **A limit per argument.** `Limit(2, per="site")` counts each site by itself; a site that nobody asks costs nothing.
* **Several limits.** `Limit(10)` holds for all sites together: a run needs a place under each of them before it starts.
* **No slot while it waits.** A run that finds no place is parked, and its worker goes on with others; the place of a body
  that ends goes to whoever was parked first. A worker that is killed has its places given to others, as its runs are.
* **A place is held while the body runs**, not between attempts: a site that is down does not keep others waiting.

A redeploy with other numbers holds from the next run on that starts or ends: what the workers say that were started last
holds for all, also for those that are parked. A limit that is taken out of the code stays with the runs that were submitted
under it.
"""

from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import urlsplit

from msgspec import Struct

from tenure import App, Context, Fail, Limit, Retry

app = App("capped")
MAX_BYTES = 8 * 1024 * 1024


class Fetched(Struct):
    """What a site has answered."""

    status: int
    kind: str
    size: int


@app.actor(
    limits=[Limit(2, per="site"), Limit(10)],
    timeout=60.0,
    retry=Retry(max_attempts=5, initial=1.0, maximum=60.0, factor=3.0, jitter=0.3),
)
def fetch(ctx: Context, site: str, path: str = "/") -> Fetched:
    """Get `path` of `site` (`https://example.org`, `http://localhost:8000`) and say what came.

    A plain function, so it runs in a thread. Raises `Fail` for what is no site and for an answer of 4xx, which a retry
    would not change; an error of the network or of the server is retried.
    """
    parts = urlsplit(site)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise Fail(f"a site is https://<host> or http://<host>, not {site!r}")
    make = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = make(parts.hostname, parts.port, timeout=20)
    try:
        connection.request("GET", path, headers={"User-Agent": "tenure-example"})
        answer = connection.getresponse()
        body = answer.read(MAX_BYTES)
    except HTTPException as error:
        raise ConnectionError(f"{site}{path}: {error!r}") from error
    finally:
        connection.close()
    ctx.check()
    if answer.status >= 500:  # noqa: PLR2004  (the server's own trouble: try again)
        raise ConnectionError(f"{site}{path}: {answer.status} {answer.reason}")
    if answer.status >= 400:  # noqa: PLR2004  (ours: no use to ask again)
        raise Fail(f"{site}{path}: {answer.status} {answer.reason}")
    return Fetched(answer.status, answer.headers.get_content_type(), len(body))
