"""A server that answers what it is told to, as vLLM's would."""

import contextlib
import http.server
import json
import threading


class _Answers(http.server.BaseHTTPRequestHandler):
    pages: dict

    def do_GET(self):
        content = self.pages.get(self.path)
        self.send_response(404 if content is None else 200)
        self.end_headers()
        if content is not None:
            self.wfile.write(content.encode())

    def log_message(self, *_):
        """Say nothing."""


@contextlib.contextmanager
def serving(pages):
    """The URL of a server with these pages, by path."""
    handler = type("Handler", (_Answers,), {"pages": pages})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def vllm_pages(metrics, version="0.32.0", max_model_len=4096):
    """The pages that the doctor asks vLLM's server for."""
    models = {"data": [{"id": "m", "max_model_len": max_model_len}, {"id": "adapter"}]}
    return {
        "/health": "",
        "/version": json.dumps({"version": version}),
        "/v1/models": json.dumps(models),
        "/metrics": metrics,
    }
