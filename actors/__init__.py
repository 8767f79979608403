"""Example actors, each a real task that can be read, run and copied.

Run one from the root of the project::

    tenure dev actors.documents:app         # server and worker in one terminal
    tenure worker actors.documents:app      # a worker alone, against $TENURE_NATS_URL

Where Tenure is installed they are `tenure.examples`, and need no checkout::

    tenure dev tenure.examples.documents:app

* `actors.documents`: extract the text of real files page by page, then refine it in a second, spawned run.
* `actors.monitor`: a perpetual check whose interval is replaced while it runs.

`actors.reading`, `actors.pages`, `actors.summary` and `actors.finding` are what `actors.documents` is made of. They
know nothing of Tenure: an actor stays small when the work is plain functions that a test can call.
"""
