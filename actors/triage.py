"""Example: what is urgent first, and the rest all the same.

    tenure worker actors.triage:app --queue desk=3 --queue archive=1 --concurrency 8

What it shows:

* **Priorities** are of a queue: while `page`, `answer` and `digest` all wait, free slots go to them 16 : 4 : 1. So a flood of pages
  delays a digest, and never for ever.
* **Weights** are of a worker: while both queues have work, three of four slots are the desk's; while one has none, the other
  gets them all.
"""

from tenure import App

app = App("triage")
done: list[str] = []


@app.actor(queue="desk", priority="high")
async def page(whom: str) -> None:
    """Call somebody who is on duty."""
    done.append(f"page {whom}")


@app.actor(queue="desk")
async def answer(letter: str) -> None:
    """Answer a letter."""
    done.append(f"answer {letter}")


@app.actor(queue="desk", priority="low")
async def digest(week: int) -> None:
    """Sum a week up."""
    done.append(f"digest {week}")


@app.actor(queue="archive")
async def file_away(letter: str) -> None:
    """Put a letter where it can be found."""
    done.append(f"file {letter}")
