"""The server's address: taken before a model is loaded, so that a wrong one is said at once."""

from __future__ import annotations

import socket

from dynamicrubric.errors import UserError


def bound(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to an address, not listening yet.

    Raises:
        UserError: there is no such host.
        OSError: the address is in use, or not this machine's; it has the address as its filename.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise UserError(
            doing=f"listening on {host}:{port}",
            got=error.strerror or "no such host",
            expected="an address of this machine, such as 127.0.0.1",
        ) from None
    family, kind, protocol, _, address = found[0]
    opened = socket.socket(family, kind, protocol)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(address)
    except OSError as error:
        opened.close()
        error.filename = f"{host}:{port}"
        raise
    return opened


def url_of(opened: socket.socket) -> str:
    """Return the address that a socket is bound to, as a browser takes it."""
    host, port = opened.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
