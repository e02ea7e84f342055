"""Makes requests_python.json: requests as the Azure SDKs for Python really send them, caught on the wire. And
header_order.json: header names in the order in which these SDKs sort them.

    python3 -m venv venv && venv/bin/pip install azure-data-tables azure-storage-queue azure-storage-blob aiohttp
    venv/bin/python python.py

Each entry has the bytes of a request, when it was made, and who the server must find to be asking. What no SDK makes
any more (SharedKeyLite, signatures of old versions) is computed here from the text of the documentation.
"""

import asyncio, base64, hashlib, hmac, json, random, re, socket, threading, time, uuid
from datetime import datetime, timezone
from pathlib import Path
from urllib.parse import quote

from azure.core import MatchConditions
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.data import tables
from azure.data.tables import aio as tables_aio
from azure.storage import blob, queue
from azure.storage.queue import aio as queue_aio
from azure.storage.queue._shared.authentication import _storage_header_sort

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
EXPIRY = datetime(2099, 1, 1, tzinfo=timezone.utc)
SNAPSHOT = "2026-11-14T01:02:03.4567890Z"

vectors = []
caught = []


def listen():
    """Answers every request with 404 and keeps its bytes."""
    server = socket.create_server(("127.0.0.1", 0))

    def loop():
        while True:
            connection, _ = server.accept()
            threading.Thread(target=catch, args=(connection,), daemon=True).start()

    threading.Thread(target=loop, daemon=True).start()
    return server.getsockname()[1]


def catch(connection):
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(65536)
        if not more:
            return
        data += more
    head, body = data.split(b"\r\n\r\n", 1)
    length = 0
    for line in head.split(b"\r\n")[1:]:
        name, value = line.split(b":", 1)
        if name.lower() == b"content-length":
            length = int(value)
    while len(body) < length:
        body += connection.recv(65536)
    caught.append(head + b"\r\n\r\n" + body)
    connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    connection.close()


# Request ids without this machine's address in them.
uuid.uuid1 = uuid.uuid4

# {account}.{service}.localhost is this machine, whatever the resolver says.
resolve = socket.getaddrinfo
socket.getaddrinfo = lambda host, *rest, **named: resolve(
    "127.0.0.1" if str(host).endswith("localhost") else host, *rest, **named
)


def keep(name, kind, identity, before):
    assert len(caught) == before + 1, f"{name}: {len(caught) - before} requests"
    # The SDK tells about the machine there, and it is not signed.
    request = re.sub(r"User-Agent: [^\r]*\r\n", "", caught[-1].decode("latin-1"))
    entry = {"name": name, "kind": kind, "unix_s": int(time.time()), "identity": identity}
    vectors.append(entry | {"request": request})


def call(name, kind, identity, action):
    before = len(caught)
    try:
        result = action()
        if hasattr(result, "__iter__") and not isinstance(result, (dict, str, bytes)):
            list(result)
    except Exception as error:
        if len(caught) == before:
            raise RuntimeError(name) from error
    keep(name, kind, identity, before)


async def call_async(name, kind, identity, action):
    before = len(caught)
    try:
        result = action()
        if hasattr(result, "__aiter__"):
            async for _ in result:
                pass
        else:
            await result
    except Exception as error:
        if len(caught) == before:
            raise RuntimeError(name) from error
    keep(name, kind, identity, before)


port = listen()
PATH = f"http://127.0.0.1:{port}/{ACCOUNT}"
HOST = "http://" + ACCOUNT + ".{}.localhost:" + str(port)
named_key = AzureNamedKeyCredential(ACCOUNT, KEY)
OPTIONS = {"retry_total": 0, "retries": 0}
KEYS = ["plain", "o'b", "a b+c%20d", "ü€𝄞", "x=y&z", "a:b,c;d@e!f$g*h~i(j)"]


def table_requests():
    for style, url in [("path", PATH), ("host", HOST.format("table")), ("secondary", PATH + "-secondary")]:
        service = tables.TableServiceClient(url, credential=named_key, **OPTIONS)
        table = service.get_table_client("Orders")
        run = lambda name, action: call(f"table {style} {name}", "table", "SharedKey", action)
        run("list tables", lambda: service.list_tables())
        run("query", lambda: table.query_entities("PartitionKey eq 'a''b' and n gt 5L", select=["n", "RowKey"]))
        for key in KEYS:
            run(f"get {key}", lambda: table.get_entity(key, key))
        if style == "secondary":
            continue
        if style == "path":
            run("stats", lambda: service.get_service_stats())
        run("create", lambda: service.create_table("Orders"))
        run("delete table", lambda: service.delete_table("Orders"))
        entity = {"PartitionKey": "p", "RowKey": "r", "n": 1.0, "s": "ü"}
        run("insert", lambda: table.create_entity(entity))
        run("upsert", lambda: table.upsert_entity(entity))
        etag = "W/\"datetime'2026-11-15T07%3A25%3A16.2221997Z'\""
        same = MatchConditions.IfNotModified
        run("merge", lambda: table.update_entity(entity, etag=etag, match_condition=same))
        run("delete", lambda: table.delete_entity("p", "r"))
        run("batch", lambda: table.submit_transaction([("create", entity), ("delete", entity | {"RowKey": "s"})]))
        run("get acl", lambda: table.get_table_access_policy())
        run("set acl", lambda: table.set_table_access_policy({"id": tables.TableAccessPolicy(permission="r")}))
        run("get properties", lambda: service.get_service_properties())


async def table_requests_async():
    async with tables_aio.TableServiceClient(PATH, credential=named_key, **OPTIONS) as service:
        table = service.get_table_client("Orders")
        for key in KEYS:
            name = f"table aiohttp get {key}"
            await call_async(name, "table", "SharedKey", lambda: table.get_entity(key, key))
        await call_async(
            "table aiohttp query", "table", "SharedKey", lambda: table.query_entities("PartitionKey eq 'a+b ü'")
        )


METADATA = {"ab": "1", "a_b": "2", "abc": "3", "MixedCase": "4", "a1": "5", "_x": "6", "A_": "7", "ac": " 8 "}


def queue_requests():
    for style, url in [("path", PATH), ("host", HOST.format("queue"))]:
        for version in [None, "2019-02-02"]:
            named = OPTIONS if version is None else OPTIONS | {"api_version": version}
            service = queue.QueueServiceClient(url, credential=dev_credential(), **named)
            jobs = service.get_queue_client("jobs")
            prefix = f"queue {style} {version or 'newest'}"
            run = lambda name, action: call(f"{prefix} {name}", "queue", "SharedKey", action)
            run("create", lambda: jobs.create_queue(metadata=METADATA))
            run("list", lambda: service.list_queues(name_starts_with="a b+ü", include_metadata=True))
            run("put", lambda: jobs.send_message("hello <ü> & more", time_to_live=-1, visibility_timeout=5))
            run("get", lambda: jobs.receive_messages(max_messages=32, visibility_timeout=60))
            run("peek", lambda: jobs.peek_messages(5))
            run("update", lambda: jobs.update_message("id", pop_receipt="AgAAAA+/==", visibility_timeout=0, content="x"))
            run("delete", lambda: jobs.delete_message("id", "AgAAAA+/=="))
            run("clear", lambda: jobs.clear_messages())
            run("get metadata", lambda: jobs.get_queue_properties())
            run("set metadata", lambda: jobs.set_queue_metadata({}))
            run("set acl", lambda: jobs.set_queue_access_policy({"id": queue.AccessPolicy(permission="r")}))
            run("drop", lambda: jobs.delete_queue())


def dev_credential():
    return {"account_name": ACCOUNT, "account_key": KEY}


async def queue_requests_async():
    async with queue_aio.QueueServiceClient(PATH, credential=dev_credential(), **OPTIONS) as service:
        jobs = service.get_queue_client("jobs")
        for name, action in [
            ("create", lambda: jobs.create_queue(metadata=METADATA)),
            ("put", lambda: jobs.send_message("hello")),
            ("delete", lambda: jobs.delete_message("id", "AgAAAA+/==")),
        ]:
            await call_async(f"queue aiohttp {name}", "queue", "SharedKey", action)


def blob_requests():
    service = blob.BlobServiceClient(PATH, credential=dev_credential(), **OPTIONS)
    run = lambda name, action: call(f"blob {name}", "blob", "SharedKey", action)
    for name in ["plain", "dir//a b+c/", "ü%20'€'"]:
        one = service.get_blob_client("pictures", name)
        run(f"put {name}", lambda: one.upload_blob(b"data", metadata=METADATA, overwrite=True))
        run(f"get {name}", lambda: one.download_blob(offset=5, length=10).readall())
        run(f"head {name}", lambda: one.get_blob_properties(if_modified_since=datetime(2020, 1, 1)))
    container = service.get_container_client("pictures")
    run("list", lambda: container.list_blobs(name_starts_with="a/ü", include=["metadata", "tags"]))


def sas_requests():
    table_account = tables.generate_account_sas(
        named_key,
        resource_types=tables.ResourceTypes(service=True, object=True),
        permission=tables.AccountSasPermissions(read=True, list=True),
        expiry=EXPIRY,
        start=datetime(2020, 1, 1),
        protocol="https,http",
    )
    table_one = tables.generate_table_sas(
        named_key,
        "Orders",
        permission=tables.TableSasPermissions(read=True, add=True),
        expiry=EXPIRY,
        ip_address_or_range="127.0.0.0-127.0.0.9",
        start_pk="a b+c",
        start_rk="1",
        end_pk="ü",
        end_rk="9",
    )
    table_policy = tables.generate_table_sas(named_key, "orders", policy_id="read-only")
    for name, token, identity in [
        ("account", table_account, "account so lr"),
        ("one table", table_one, "service orders ar keys"),
        ("stored policy", table_policy, "service orders r"),
    ]:
        client = tables.TableClient(PATH, "ORDERS", credential=AzureSasCredential(token), **OPTIONS)
        call(f"sas table {name}", "table", identity, lambda: client.get_entity("b", "o'b+1"))

    queue_account = queue.generate_account_sas(
        ACCOUNT,
        KEY,
        resource_types=queue.ResourceTypes(container=True, object=True),
        permission=queue.AccountSasPermissions(read=True, process=True, add=True),
        expiry=EXPIRY,
        ip="127.0.0.1",
    )
    queue_one = queue.generate_queue_sas(ACCOUNT, "jobs", KEY, permission="raup", expiry="2099-01-01", start="2020-01-01T00:00Z")
    queue_policy = queue.generate_queue_sas(ACCOUNT, "jobs", KEY, policy_id="read-only")
    for name, token, identity in [
        ("account", queue_account, "account co apr"),
        ("one queue", queue_one, "service jobs apru"),
        ("stored policy", queue_policy, "service jobs r"),
    ]:
        client = queue.QueueClient(PATH, "jobs", credential=AzureSasCredential(token), **OPTIONS)
        call(f"sas queue {name}", "queue", identity, lambda: client.peek_messages(1))

    named = {"permission": "rw", "expiry": EXPIRY}
    for name, token, identity in [
        ("container", blob.generate_container_sas(ACCOUNT, "pictures", KEY, **named), "service pictures rw"),
        (
            "one blob",
            blob.generate_blob_sas(ACCOUNT, "pictures", "a b/ü.png", account_key=KEY, content_type="x/y", **named),
            "service pictures/a b/ü.png rw",
        ),
        (
            "snapshot",
            blob.generate_blob_sas(ACCOUNT, "pictures", "a b/ü.png", account_key=KEY, snapshot=SNAPSHOT, **named),
            "service pictures/a b/ü.png rw",
        ),
        (
            "directory",
            blob.generate_blob_sas(ACCOUNT, "pictures", "a b", account_key=KEY, is_directory=True, **named),
            "service pictures/a b rw",
        ),
        (
            "encryption scope",
            blob.generate_blob_sas(
                ACCOUNT, "pictures", "a b/ü.png", account_key=KEY, encryption_scope="mine", cache_control="no-cache", **named
            ),
            "service pictures/a b/ü.png rw",
        ),
        ("stored policy", blob.generate_container_sas(ACCOUNT, "orders", KEY, policy_id="read-only"), "service orders r"),
        (
            "stored policy of a blob's container",
            blob.generate_blob_sas(ACCOUNT, "orders", "a b/ü.png", account_key=KEY, policy_id="read-only"),
            "service orders/a b/ü.png r",
        ),
        (
            "account",
            blob.generate_account_sas(
                ACCOUNT,
                KEY,
                resource_types=blob.ResourceTypes(service=True, container=True, object=True),
                permission=blob.AccountSasPermissions(read=True, write=True, delete=True, list=True, tag=True),
                expiry=EXPIRY,
            ),
            "account sco dlrtw",
        ),
    ]:
        container = "orders" if "orders" in identity else "pictures"
        snapshot = SNAPSHOT if name == "snapshot" else None
        client = blob.BlobClient(
            PATH, container, "a b/ü.png", snapshot=snapshot, credential=AzureSasCredential(token), **OPTIONS
        )
        call(f"sas blob {name}", "blob", identity, lambda: client.get_blob_properties())


def secondary_requests():
    for kind, client in [("queue", queue.QueueServiceClient), ("blob", blob.BlobServiceClient)]:
        host = f"127.0.0.1:{port}/{ACCOUNT}-secondary"
        service = client(PATH, credential=dev_credential(), secondary_hostname=host, **OPTIONS)
        call(f"{kind} secondary stats", kind, "SharedKey", lambda: service.get_service_stats())


def sign(text):
    digest = hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()
    return base64.b64encode(digest).decode()


def computed(name, kind, identity, method, target, headers):
    lines = [f"{method} {target} HTTP/1.1", "Host: 127.0.0.1"] + [f"{name}: {value}" for name, value in headers]
    request = "\r\n".join(lines) + "\r\n\r\n"
    vectors.append(
        {"name": f"computed {name}", "kind": kind, "unix_s": int(time.time()), "identity": identity, "request": request}
    )


def computed_requests():
    date = datetime.now(timezone.utc).strftime("%a, %d %b %Y %H:%M:%S GMT")
    path = f"/{ACCOUNT}/Orders()"
    lite = lambda text: ("Authorization", f"SharedKeyLite {ACCOUNT}:{sign(text)}")
    full = lambda text: ("Authorization", f"SharedKey {ACCOUNT}:{sign(text)}")
    computed("lite table", "table", "SharedKey", "GET", path + "?$top=1", [("x-ms-date", date), lite(f"{date}\n/{ACCOUNT}{path}")])
    computed(
        "lite table, Date only, comp",
        "table",
        "SharedKey",
        "GET",
        f"/{ACCOUNT}/Orders?comp=acl",
        [("Date", date), lite(f"{date}\n/{ACCOUNT}/{ACCOUNT}/Orders?comp=acl")],
    )
    computed(
        "lite queue",
        "queue",
        "SharedKey",
        "GET",
        f"/{ACCOUNT}/jobs?comp=metadata&timeout=5",
        [("x-ms-date", date), ("x-ms-version", "2019-02-02"), ("Content-Type", "a/b")]
        + [lite(f"GET\n\na/b\n\nx-ms-date:{date}\nx-ms-version:2019-02-02\n/{ACCOUNT}/{ACCOUNT}/jobs?comp=metadata")],
    )
    # A client that sorts headers by their bytes, and one that signs a length of 0 as versions before 2015-02-21 did.
    meta = [("x-ms-meta-a-b", "1"), ("x-ms-meta-aa", "2")]
    for order in [meta, meta[::-1]]:
        text = "".join(f"{name}:{value}\n" for name, value in [("x-ms-date", date)] + order)
        text = f"PUT\n\n\n0\n\n\n\n\n\n\n\n\n{text}x-ms-version:2014-02-14\n/{ACCOUNT}/{ACCOUNT}/jobs"
        headers = [("x-ms-date", date), ("x-ms-version", "2014-02-14"), ("Content-Length", "0"), full(text)]
        computed(f"queue, {order[0][0]} first", "queue", "SharedKey", "PUT", f"/{ACCOUNT}/jobs", headers + meta)
    # Query parameters that occur twice, in mixed case, and with a plus sign, signed in both ways.
    for value in ["b c", "b+c"]:
        text = f"GET\n\n\n\n\n\n{date}\n\n\n\n\n\n/{ACCOUNT}/{ACCOUNT}/jobs\na:1,{value}\nzed:x"
        target = f"/{ACCOUNT}/jobs?Zed=x&A=b+c&a=1"
        computed(f"queue, plus is {value[1]!r}", "queue", "SharedKey", "GET", target, [("Date", date), full(text)])

    se = "2099-01-01T00:00:00Z"
    for version, name, fields in [
        ("2012-02-12", f"/{ACCOUNT}/jobs", "raup\n\n{se}\n{name}\n\n{sv}"),
        ("2014-02-14", f"/{ACCOUNT}/jobs", "raup\n\n{se}\n{name}\n\n{sv}"),
        ("2015-02-21", f"/queue/{ACCOUNT}/jobs", "raup\n\n{se}\n{name}\n\n{sv}"),
        ("2015-04-05", f"/queue/{ACCOUNT}/jobs", "raup\n\n{se}\n{name}\n\n\n\n{sv}"),
        ("2099-01-01", f"/queue/{ACCOUNT}/jobs", "raup\n\n{se}\n{name}\n\n\n\n{sv}"),
    ]:
        signature = quote(sign(fields.format(se=se, name=name, sv=version)), safe="")
        target = f"/{ACCOUNT}/jobs/messages?sv={version}&se={quote(se)}&sp=raup&sig={signature}"
        computed(f"sas queue of {version}", "queue", "service jobs apru", "GET", target, [])
    for version, name, fields in [
        ("2012-02-12", f"/{ACCOUNT}/orders", "r\n\n{se}\n{name}\n\n{sv}\na\n\n\n"),
        ("2015-04-05", f"/table/{ACCOUNT}/orders", "r\n\n{se}\n{name}\n\n\n\n{sv}\na\n\n\n"),
    ]:
        signature = quote(sign(fields.format(se=se, name=name, sv=version)), safe="")
        target = f"{path}?sv={version}&tn=Orders&se={quote(se)}&sp=r&spk=a&sig={signature}"
        computed(f"sas table of {version}", "table", "service orders r keys", "GET", target, [])
    for version, name, fields in [
        ("2012-02-12", f"/{ACCOUNT}/c/b", "r\n\n{se}\n{name}\n\n{sv}"),
        ("2013-08-15", f"/{ACCOUNT}/c/b", "r\n\n{se}\n{name}\n\n{sv}\n\n\n\n\nx/y"),
        ("2015-04-05", f"/blob/{ACCOUNT}/c/b", "r\n\n{se}\n{name}\n\n\n\n{sv}\n\n\n\n\nx/y"),
        ("2018-11-09", f"/blob/{ACCOUNT}/c/b", "r\n\n{se}\n{name}\n\n\n\n{sv}\nb\n\n\n\n\n\nx/y"),
        ("2020-12-06", f"/blob/{ACCOUNT}/c/b", "r\n\n{se}\n{name}\n\n\n\n{sv}\nb\n\n\n\n\n\n\nx/y"),
    ]:
        signature = quote(sign(fields.format(se=se, name=name, sv=version)), safe="")
        target = f"/{ACCOUNT}/c/b?sv={version}&sr=b&se={quote(se)}&sp=r&rsct=x%2Fy&sig={signature}"
        computed(f"sas blob of {version}", "blob", "service c/b r", "GET", target, [])


def header_orders():
    choose = random.Random(20261115)
    orders = []
    for _ in range(200):
        letters = "abz-_'019.!#$%&*+^`|~" if choose.random() < 0.5 else "ab-'_1"
        names = {"x-ms-" + "".join(choose.choices(letters, k=choose.randint(0, 5))) for _ in range(8)}
        orders.append([name for name, _ in _storage_header_sort([(name, "") for name in sorted(names)])])
    return orders


table_requests()
asyncio.run(table_requests_async())
queue_requests()
asyncio.run(queue_requests_async())
blob_requests()
sas_requests()
secondary_requests()
computed_requests()


def write(file, values):
    with open(Path(__file__).with_name(file), "w") as out:
        out.write("[\n" + ",\n".join(json.dumps(value) for value in values) + "\n]\n")


write("requests_python.json", vectors)
write("header_order.json", header_orders())
