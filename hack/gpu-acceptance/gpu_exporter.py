# SPDX-License-Identifier: Apache-2.0
"""Serves one XID of one GPU as DCGM exporter does, inside a container. Arguments: `UUID XID`."""

import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

PORT = 9400
TEXT = """\
# HELP DCGM_FI_DEV_XID_ERRORS Value of the last XID error encountered.
# TYPE DCGM_FI_DEV_XID_ERRORS gauge
DCGM_FI_DEV_XID_ERRORS{{gpu="0",UUID="{uuid}"}} {xid}
"""


class Handler(BaseHTTPRequestHandler):
    """Answers every GET."""

    def do_GET(self) -> None:
        """Send the one metric."""
        uuid, xid = sys.argv[1:]
        body = TEXT.format(uuid=uuid, xid=xid).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    HTTPServer(("", PORT), Handler).serve_forever()
