"""What the store of large payloads promises."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tenure.core.errors import InvalidCall, TenureError
from tenure.stores import Stores


@pytest.mark.parametrize("size", [0, 1, 131_072, 5_000_000])
async def test_a_blob_comes_back_as_it_was(stores: Stores, size: int) -> None:
    data = bytes(i % 251 for i in range(min(size, 1000))) * (size // 1000 or 1) if size else b""
    blob = await stores.blobs.put("r1.args", data)
    assert blob.size == len(data)
    assert await stores.blobs.get(blob) == data


async def test_a_blob_over_the_limit_is_refused_with_both_numbers(stores: Stores) -> None:
    limit = stores.config.blob_limit_bytes
    with pytest.raises(InvalidCall, match=str(limit)):
        await stores.blobs.put("big", b"x" * (limit + 1))


async def test_a_blob_that_is_not_what_was_stored_is_an_error(stores: Stores) -> None:
    blob = await stores.blobs.put("r1.args", b"what was stored")
    with pytest.raises(TenureError, match="digest"):
        await stores.blobs.get(replace(blob, digest="0" * 64))


async def test_a_blob_that_is_gone_is_an_error_that_names_it(stores: Stores) -> None:
    blob = await stores.blobs.put("r1.args", b"data")
    with pytest.raises(TenureError, match="absent"):
        await stores.blobs.get(replace(blob, name="absent"))
