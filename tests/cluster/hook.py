"""Kueue's webhooks for pods, on loopback: tests/gang_kueue.py says what they answer.

    python hook.py PORT CERTIFICATE KEY

Source: https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/.
"""

from __future__ import annotations

import base64
import json
import ssl
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from gang_kueue import gated, refusal


class Answers(BaseHTTPRequestHandler):
    """One AdmissionReview a request."""

    def do_POST(self) -> None:
        """What is changed in the pod, or what is wrong with it."""
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = json.dumps({**review, "request": None, "response": judged(review["request"])})
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer.encode())

    def log_message(self, format: str, *words: Any) -> None:
        """Nothing."""


def judged(request: dict[str, Any]) -> dict[str, Any]:
    """The response to an AdmissionRequest."""
    pod = request["object"]
    problem = refusal(pod)
    if problem:
        return {"uid": request["uid"], "allowed": False, "status": {"message": problem}}
    pod = gated(pod)
    steps = [{"op": "add", "path": f"/{part}", "value": pod[part]} for part in ("metadata", "spec")]
    patch = base64.b64encode(json.dumps(steps).encode()).decode()
    return {"uid": request["uid"], "allowed": True, "patchType": "JSONPatch", "patch": patch}


def main() -> None:
    """Serve until killed."""
    port, certificate, key = sys.argv[1:]
    server = ThreadingHTTPServer(("127.0.0.1", int(port)), Answers)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
