"""external.metrics.k8s.io with one metric, the number that a URL answers, as KEDA serves it to an autoscaler.

`python metrics_stub.py URL`, beside key.pem and certificate.pem. It needs nothing but Python.
"""

import json
import ssl
import sys
import urllib.request
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

VERSION = "external.metrics.k8s.io/v1beta1"


class Metrics(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        found = self._value() if "/namespaces/" in self.path else self._kinds()
        body = json.dumps(found).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _kinds(self) -> dict[str, object]:
        wanted = {"name": "wanted", "namespaced": True, "kind": "ExternalMetricValueList", "verbs": ["get"]}
        return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": VERSION, "resources": [wanted]}

    def _value(self) -> dict[str, object]:
        with urllib.request.urlopen(sys.argv[1], timeout=5) as answer:
            value = json.load(answer)["desired_workers"]
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        item: dict[str, object] = {"metricName": "wanted", "metricLabels": {}, "timestamp": now, "value": str(value)}
        return {"kind": "ExternalMetricValueList", "apiVersion": VERSION, "metadata": {}, "items": [item]}


if __name__ == "__main__":
    server = ThreadingHTTPServer(("", 6443), Metrics)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    folder = Path(__file__).parent
    context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.serve_forever()
