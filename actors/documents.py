"""Example: an extraction job of two legs over real files.

`extract` reads one file page by page and ends by spawning `refine` for what it found. Both results are typed::

    tenure submit actors.documents:app extract --key doc-1 --arg path=/usr/share/doc/bash/README.gz --wait
    tenure result doc-1/refined --namespace docs

    async with app.connect() as client:
        run = await client.submit(extract.call("/usr/share/doc/bash/README.gz"), key="doc-1")
        extracted = await run.result()                              # an Extracted
        refined = await client.run("doc-1/refined").result()        # a Refined

What it shows:

* **Two legs, nothing in between.** `ctx.spawn` stores the second leg with the outcome of the first in one write. A
  crash before it runs the first leg again; after it, the second leg is certain. No state "extracted but never refined".
* **Replace and cancel in mid-run.** A page is one step: the body waits for a thread, for the progress report and for
  `pause` between any two pages, so it ends within about a page of being told to stop. A thread cannot be cancelled:
  the page it is reading is read to its end and thrown away.
* **The event loop stays free.** Reading, decompressing and parsing happen in threads.
* **What to retry.** A file that is missing, binary, broken, encrypted or over 64 MiB (as stored or decompressed) stays
  so: `Fail`, no retry, and the text names the path. An I/O error of the disk or the network mount is retried.

Relative paths are looked up from the worker's working folder; give absolute ones. Workers must see the same files. PDF
files from strangers that may be made to waste time belong on workers of their own.
"""

import asyncio
import math
from collections.abc import Iterator

from tenure import App, Context, Fail, Retry

from .finding import find_documents
from .reading import Document, Unreadable, open_document
from .summary import KEPT_TERMS, Extracted, Refined, Tally, most_frequent, summarise

__all__ = ["Extracted", "Refined", "app", "extract", "find_documents", "refine"]

app = App("docs")


@app.actor(timeout=300.0, retry=Retry(max_attempts=4, initial=0.5, maximum=10.0, factor=2.0, jitter=0.2))
async def extract(ctx: Context, path: str, pause: float = 0.0) -> Extracted:
    """Count what is in the document at `path`, then spawn `refine` under the key `<this key>/refined`.

    `pause` is seconds of pretended work per page, for demonstrations and for tests that replace or cancel in mid-run;
    all pages and pauses together must fit into the timeout of 300 s. Progress is in pages; its total is exact for PDF
    and an estimate by size for the rest. Raises `Fail` for an unreadable file and for a `pause` that is no duration.
    """
    if not (math.isfinite(pause) and pause >= 0):
        raise Fail(f"pause must be seconds >= 0, not {pause}")
    tally = Tally()
    try:
        document = await asyncio.to_thread(open_document, path)
        while await asyncio.to_thread(take_page, document.pages, tally):
            total = max(document.expected_pages, tally.pages)
            await ctx.progress(tally.pages, total, f"{document.kind}, page {tally.pages}")
            await asyncio.sleep(pause)
        if tally.pages < document.expected_pages:
            await ctx.progress(tally.pages, tally.pages, f"{document.kind}, all pages read")
    except Unreadable as error:
        raise Fail(str(error)) from error
    extracted = to_extracted(document, tally)
    ctx.spawn(refine.call(extracted), key=f"{ctx.key}/refined")
    return extracted


@app.actor(timeout=30.0, retry=Retry(max_attempts=3, initial=0.2, maximum=5.0, factor=2.0, jitter=0.2))
def refine(ctx: Context, extracted: Extracted) -> Refined:
    """Sum up an extraction: reading time, the ten most frequent significant words, lexical richness, a digest.

    A plain function, so it runs in a thread. All that it needs is in its argument: any worker can do it, file or not.
    """
    refined = summarise(extracted)
    ctx.log.info("document.refined", path=refined.path, words=extracted.words, digest=refined.digest)
    return refined


def take_page(pages: Iterator[str], tally: Tally) -> bool:
    """Read the next page and count it, which may take a while; False when there is none."""
    page = next(pages, None)
    if page is not None:
        tally.add(page)
    return page is not None


def to_extracted(document: Document, tally: Tally) -> Extracted:
    """Put together what is known of a document when its pages have been read."""
    return Extracted(
        path=document.path,
        kind=document.kind,
        title=document.title,
        pages=tally.pages,
        words=tally.words,
        characters=tally.characters,
        distinct=len(tally.terms),
        digest=document.digest,
        terms=dict(most_frequent(tally.terms, KEPT_TERMS)),
    )
