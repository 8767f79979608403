"""What a supervisor tells the history of commands that it rejected: they changed no record that would tell it."""

from __future__ import annotations

from collections.abc import Mapping

from tenure.core.errors import InvalidCall
from tenure.core.history import MAX_WHY, Refusal
from tenure.core.subjects import check_key
from tenure.nats.history import History


async def tell_rejected(history: History, headers: Mapping[str, str], reason: str, text: str) -> None:
    """Under the key that the command names, if it names one that can be. The words quote its headers: they are not for all."""
    named = next((value for name, value in headers.items() if name.lower() == "tenure-key"), None)
    try:
        key = check_key(named)
    except InvalidCall:
        return
    await history.tell(
        key, Refusal(run_id="", where="inbox", why=reason if history.hides else f"{reason}: {text}"[:MAX_WHY])
    )
