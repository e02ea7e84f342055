"""What is sent to a collector of traces, read with OpenTelemetry's own decoder. E2."""

import base64
import http.server
import json
import os
import subprocess
import threading

import psycopg
import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from conftest import ROOT

TYPES = {"http/protobuf": "application/x-protobuf", "http/json": "application/json"}
WAIT_S = 60


class Collector:
    """Takes what is posted to it, and keeps it."""

    def __init__(self):
        self.bodies, self.news = [], threading.Condition()
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                with collector.news:
                    collector.bodies.append((self.path, self.headers["content-type"], body))
                    collector.news.notify_all()
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def wait_for(self, is_there):
        """What it says of all bodies, once it says anything."""
        with self.news:
            assert self.news.wait_for(lambda: is_there(self.bodies), WAIT_S), "the spans did not come"
            return is_there(self.bodies)

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


def decoded_json(body):
    """OTLP writes ids in hexadecimal, protobuf's own JSON has base64: only this differs, and unknown fields fail."""

    def ids(value):
        if isinstance(value, list):
            return [ids(one) for one in value]
        if not isinstance(value, dict):
            return value
        names = ["traceId", "spanId", "parentSpanId"]
        return {
            name: base64.b64encode(bytes.fromhex(one)).decode() if name in names else ids(one)
            for name, one in value.items()
        }

    return json_format.ParseDict(ids(json.loads(body)), ExportTraceServiceRequest())


def decoded_protobuf(body):
    request = ExportTraceServiceRequest.FromString(body)
    # Nothing that the schema does not know, and nothing written twice: it comes out again byte by byte.
    assert request.SerializeToString(deterministic=True) == body
    return request


@pytest.mark.parametrize("protocol", TYPES)
def test_spans_are_what_the_schema_says(program, tmp_path, protocol):
    collector = Collector()
    doors = ["ADMIN", "BLOB", "QUEUE", "TABLE", "SQL"]
    settings = {f"POLYSHARD__{door}__LISTEN": "127.0.0.1:0" for door in doors}
    settings |= {"POLYSHARD__TRACE__ENDPOINT": collector.address, "POLYSHARD__TRACE__PROTOCOL": protocol}
    settings |= {"POLYSHARD__TRACE__SAMPLE": "1"}
    binary = os.path.join(ROOT, "target", "debug", "polyshard")
    command = [binary, "up", "--data", str(tmp_path / "data")]
    server = subprocess.Popen(command, env=os.environ | settings, stdout=subprocess.PIPE, text=True)
    try:
        address = {}
        for line in server.stdout:
            if line.startswith("ready"):
                break
            if line.startswith("  "):
                name, told = line.split()[:2]
                address[name] = told
        sql = address["sql"].replace("polyshard@", "polyshard:polyshard@")
        with psycopg.connect(sql, autocommit=True) as connection:
            connection.execute("SELECT polyshard.create_map('tenants', 'hash', 'bigint')")
            connection.execute("CREATE TABLE notes (tenant bigint PRIMARY KEY, body text)")
            connection.execute("SELECT polyshard.shard_table('notes', 'tenants', 'tenant')")
            connection.execute("INSERT INTO notes VALUES (7, 'x')")
            with pytest.raises(psycopg.Error):
                connection.execute("SELECT * FROM nothing")

        def spans(bodies):
            decode = decoded_protobuf if protocol == "http/protobuf" else decoded_json
            found = {}
            for path, content_type, body in bodies:
                assert (path, content_type) == ("/v1/traces", TYPES[protocol])
                for resource in decode(body).resource_spans:
                    about = {one.key: one.value.string_value for one in resource.resource.attributes}
                    assert about["service.name"] == "polyshard" and about["service.version"]
                    for scope in resource.scope_spans:
                        assert scope.scope.name == "polyshard"
                        found |= {span.span_id: span for span in scope.spans}
            named = {span.name for span in found.values()}
            failed = [span for span in found.values() if span.status.code == Status.STATUS_CODE_ERROR]
            return found if failed and {"connection", "shard", "sql insert"} <= named else None

        found = collector.wait_for(spans)
        for span in found.values():
            assert len(span.trace_id) == 16 and len(span.span_id) == 8 and any(span.trace_id)
            assert span.end_time_unix_nano >= span.start_time_unix_nano > 1_600_000_000 * 10**9
            assert span.kind in [Span.SPAN_KIND_INTERNAL, Span.SPAN_KIND_SERVER, Span.SPAN_KIND_CLIENT]
        insert = next(span for span in found.values() if span.name == "sql insert")
        attributes = {one.key: one.value.string_value for one in insert.attributes}
        assert attributes["polyshard.door"] == "sql" and attributes["polyshard.outcome"] == "ok"
        below = [span for span in found.values() if span.parent_span_id == insert.span_id]
        assert [(span.name, span.trace_id) for span in below] == [("shard", insert.trace_id)]
        linked = found[insert.links[0].span_id]
        assert (linked.name, linked.trace_id) == ("connection", insert.links[0].trace_id)
    finally:
        server.terminate()
        assert server.wait(WAIT_S) == 0
        server.stdout.close()
        collector.stop()
