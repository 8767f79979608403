"""Example actors, each a real task that can be read, run and copied.

Run one from the root of the project::

    tenure dev actors.documents:app         # server and worker in one terminal
    tenure worker actors.documents:app      # a worker alone, against $TENURE_NATS_URL

Where Tenure is installed they are `tenure.examples`, and need no checkout::

    tenure dev tenure.examples.documents:app

* `actors.documents`: extract the text of real files page by page, then refine it in a second, spawned run.
* `actors.monitor`: a perpetual check whose interval is replaced while it runs.
* `actors.tables`: CSV into a database and out again: large payloads, events, history, and a fence for the outside.
* `actors.letters`: a letter to many that is triggered, paused, blocked and recalled.
* `actors.capped`, `actors.polite`: limits of how many at once, and how many in a while.
* `actors.nightly`: cron schedules that supervisors keep alive.
* `actors.triage`: priorities of a queue, weights of a worker.
* `actors.stranger`: a program that submits without Tenure, by nothing but NATS.

`actors.reading`, `actors.pages`, `actors.summary` and `actors.finding` are what `actors.documents` is made of. They
know nothing of Tenure: an actor stays small when the work is plain functions that a test can call.
"""
