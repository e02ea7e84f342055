"""Blobs with the asynchronous Python SDK, whose HTTP library writes paths anew before it sends them."""

import asyncio
import base64
import random
import uuid
from contextlib import asynccontextmanager

import pytest
from azure.core.exceptions import HttpResponseError
from azure.storage.blob.aio import BlobServiceClient

from blob_help import CREDENTIAL, MIB

ODD = ["a/b", "a//b", "a/", "b b", "b+b", "%", "%25", "a%2Fb", "ü", "日本/é", "😀", "&", "a=b", "#x", "?y", "'", '"',
       "<x>", "(p)", "a:b;c,d", "~!@$^*_-|`", "back\\slash", "\x01"]


@asynccontextmanager
async def opened(doors, **options):
    words = {"connection_verify": doors.certificate or True, "retry_total": 0, **options}
    async with BlobServiceClient(doors.blob, CREDENTIAL, **words) as service:
        container = await service.create_container("aio" + uuid.uuid4().hex)
        yield container
        await container.delete_container()


async def read(blob, **options):
    return await (await blob.download_blob(**options)).readall()


def test_odd_names(doors):
    async def one(container, name):
        blob = container.get_blob_client(name)
        await blob.upload_blob(name.encode(), metadata={"MixedCase": "yes"}, tags={"a": "b"})
        assert await read(blob) == name.encode()
        assert (await blob.get_blob_properties()).metadata == {"MixedCase": "yes"}
        assert await blob.get_blob_tags() == {"a": "b"}

    async def run():
        async with opened(doors) as container:
            await asyncio.gather(*[one(container, name) for name in ODD])
            found = [each.name async for each in container.list_blobs(results_per_page=5)]
            assert found == sorted(ODD, key=str.encode)
            for name in ODD:
                await container.delete_blob(name)

    asyncio.run(run())


def test_chunks_in_parallel(doors):
    content = random.Random(11).randbytes(20 * MIB + 1)

    async def run():
        sizes = {f"max_{what}_size": MIB for what in ["block", "single_put", "single_get", "chunk_get"]}
        async with opened(doors, **sizes) as container:
            blob = container.get_blob_client("large")
            await blob.upload_blob(content, max_concurrency=5)
            assert await read(blob, max_concurrency=5) == content
            parts = [part async for part in (await blob.download_blob(offset=3, length=5 * MIB)).chunks()]
            assert b"".join(parts) == content[3:5 * MIB + 3]

    asyncio.run(run())


def test_all_kinds_at_once(doors):
    async def blocks(container):
        blob = container.get_blob_client("blocks")
        names = [base64.b64encode(bytes([number])).decode() for number in range(20)]
        await asyncio.gather(*[blob.stage_block(name, name.encode() * 1000) for name in names])
        await blob.commit_block_list(names)
        assert await read(blob) == b"".join(name.encode() * 1000 for name in names)

    async def appends(container):
        blob = container.get_blob_client("log")
        await blob.create_append_blob()
        await asyncio.gather(*[blob.append_block(f"{number:04}".encode()) for number in range(20)])
        content = await read(blob)
        found = sorted(content[place:place + 4] for place in range(0, 80, 4))
        assert len(content) == 80 and found == [f"{number:04}".encode() for number in range(20)]

    async def pages(container):
        blob = container.get_blob_client("pages")
        await blob.create_page_blob(20 * 512)
        await asyncio.gather(*[blob.upload_page(bytes([number]) * 512, number * 512, 512) for number in range(20)])
        assert await read(blob) == b"".join(bytes([number]) * 512 for number in range(20))

    async def leases(container):
        blob = container.get_blob_client("leased")
        await blob.upload_blob(b"x")
        lease = await blob.acquire_lease(-1)
        with pytest.raises(HttpResponseError) as caught:
            await blob.delete_blob()
        assert caught.value.error_code == "LeaseIdMissing"
        await lease.release()

    async def run():
        async with opened(doors) as container:
            await asyncio.gather(*[work(container) for work in [blocks, appends, pages, leases]])
            names = [each.name async for each in container.list_blobs()]
            assert names == ["blocks", "leased", "log", "pages"]
            found = [answer.status_code async for answer in await container.delete_blobs(*names)]
            assert found == [202] * 4

    asyncio.run(run())
