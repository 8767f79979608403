"""``/metrics``, ``/health`` and ``/ready`` from a thread of their own.

So that a blocked event loop still answers (and says so).
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from tenure.core.errors import ConfigError
from tenure.telemetry import get_logger

_log = get_logger("tenure.health")


class HealthServer:
    """A small HTTP server.

    ``why_not_ready`` returns an empty text while the process is ready; ``report`` what else ``/ready`` should tell.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        why_not_ready: Callable[[], str],
        report: Callable[[], str] = str,
        *,
        host: str,
        port: int,
    ) -> None:
        self._registry = registry
        self._why_not_ready = why_not_ready
        self._report = report
        handler = type("_Handler", (_Answer,), {"owner": self})
        try:
            self._server = _Server((host, port), handler)
        except OSError as error:
            msg = f"cannot serve metrics on {host}:{port}: {error}"
            raise ConfigError(msg) from error
        self._thread = threading.Thread(target=self._server.serve_forever, name="tenure-metrics", daemon=True)

    @property
    def port(self) -> int:
        """The port that is listened on (of use where 0 was asked for)."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        """Start answering."""
        self._thread.start()

    def close(self) -> None:
        """Stop answering and free the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, path: str) -> tuple[int, str, bytes]:
        """Status, content type and body of a path."""
        match path:
            case "/metrics":
                return 200, CONTENT_TYPE_LATEST, generate_latest(self._registry)
            case "/health":
                return 200, "text/plain", b"alive\n"
            case "/ready":
                why = self._why_not_ready()
                lines = [why or "ready", self._report()]
                return 503 if why else 200, "text/plain", "".join(f"{line}\n" for line in lines if line).encode()
            case _:
                return 404, "text/plain", b"try /metrics, /health or /ready\n"


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, _request: object, client_address: object) -> None:
        """In the place of a traceback on standard error: whoever asked may be gone before the answer."""
        error = sys.exc_info()[1]
        if isinstance(error, OSError):
            _log.debug("scrape.dropped", client=str(client_address), error=repr(error))
        else:
            _log.error("scrape.failed", client=str(client_address), exc_info=True)


class _Answer(BaseHTTPRequestHandler):
    owner: HealthServer

    def do_GET(self) -> None:
        status, kind, body = self.owner.answer(self.path.partition("?")[0])
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the name in http.server)
        """Scrapes are not worth a line."""
