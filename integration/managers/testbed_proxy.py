"""Forward the data connections of an endpoint in the test bed in containers, and count their bytes.

The service ``proxy-north`` of docker/testbed.yaml runs this module. The endpoint advertises the
address of the proxy.
"""

from __future__ import annotations

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from dray.testing.proxy import Proxy
from integration.managers.testbed_init import PORT, PROXY_COUNT_PORT


def main(upstream: str) -> None:
    """Run the proxy. Answer each HTTP request with the number of bytes that the endpoint sent."""
    proxy = Proxy(f"{upstream}:{PORT}", listen=("0.0.0.0", PORT))  # noqa: S104 - in a container

    class Count(BaseHTTPRequestHandler):
        """Answers with the number of bytes that the endpoint has sent so far."""

        def do_GET(self) -> None:
            """Answer."""
            body = str(proxy.counted()[1]).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    address = ("0.0.0.0", PROXY_COUNT_PORT)  # noqa: S104 - in a container
    ThreadingHTTPServer(address, Count).serve_forever()


if __name__ == "__main__":
    main(sys.argv[1])
