"""``tenure.testing.memory``: what it is given wrongly is refused where it is given, by name."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from tenure import App, ConfigError, InvalidCall, TenureError
from tenure.testing import memory

NAN, INF = float("nan"), float("inf")


@pytest.fixture
def app() -> App:
    return App("given")


WRONG: dict[str, list[Any]] = {
    "workers": [-1, "2", True, 1.0, None],
    "supervisors": [-1, "2", True, 1.0, None],
    "concurrency": [0, "2", True, None],
    "patience": [0, -1, "x", NAN, 1_000.0, None],
    "seed": ["x", None, [], True],
    "start": [
        "2030-01-01",
        date(2030, 1, 1),
        5.0,
        datetime(2030, 1, 1),  # noqa: DTZ001  (that is the mistake)
        datetime(1969, 12, 31, tzinfo=UTC),
    ],
}


@pytest.mark.parametrize(("field", "wrong"), [(field, wrong) for field, each in WRONG.items() for wrong in each])
def test_what_no_application_can_run_with_is_named(app: App, field: str, wrong: Any):
    with pytest.raises(InvalidCall, match=f"^{field} must") as refused:
        memory(app, **({"workers": 0, field: wrong}))
    assert refused.value.field == field


@pytest.mark.parametrize("wrong", [None, "given", App])
def test_what_is_to_run_must_be_an_app(wrong: Any):
    with pytest.raises(InvalidCall, match=r"^app must be a tenure\.App") as refused:
        memory(wrong)
    assert refused.value.field == "app"


@pytest.mark.parametrize("wrong", [NAN, INF, -5, "5", None, True, timedelta(seconds=-1), timedelta(days=4_000)])
async def test_time_that_cannot_pass_is_refused(app: App, wrong: Any):
    async with memory(app) as client:
        began = client.now()
        with pytest.raises(InvalidCall, match=r"^seconds must") as refused:
            await client.advance(wrong)
        assert refused.value.field == "seconds"
        assert client.now() == began
        await client.advance(0)
        await client.advance(timedelta(days=3_650))
        assert client.now() - began == pytest.approx(3_650 * 86_400)


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("subject", ""),
        ("subject", "tenure.given.submit.a b"),
        ("subject", "tenure.given\r\n"),
        ("subject", 5),
        ("data", "text, not bytes"),
        ("data", None),
        ("data", {"what": "tea"}),
        ("headers", "Tenure-Key"),
        ("headers", {"Tenure-Key": 1}),
        ("headers", [("Tenure-Key", "tea")]),
    ],
)
async def test_what_cannot_be_published_is_refused(app: App, field: str, wrong: Any):
    async with memory(app, workers=0) as client:
        with pytest.raises(InvalidCall, match=f"^{field} must") as refused:
            await client.publish(**({"subject": "tenure.given.submit.remind", field: wrong}))
        assert refused.value.field == field
        assert not client.server.jetstream.streams[app.names.inbox_stream].messages


async def test_a_client_is_entered_once(app: App):
    client = memory(app)
    async with client:
        with pytest.raises(ConfigError, match=r"was entered before.*make another with memory\(app\)"):
            await client.__aenter__()
        assert await client.status("k") is None, "it goes on"
    with pytest.raises(ConfigError, match=r"was entered before.*make another with memory\(app\)"):
        await client.__aenter__()


async def test_a_client_that_is_not_entered_lets_no_real_time_pass(app: App):
    client = memory(app)
    with pytest.raises(TenureError, match="not connected: use it as `async with"):
        await client.advance(3_600)
    async with client:
        await client.advance(3_600)
    with pytest.raises(TenureError, match="not connected: use it as `async with"):
        await client.advance(3_600)
