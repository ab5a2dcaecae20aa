"""The address of this host, as another host reaches it."""

import os
import re
import socket

_FIRST_MASTER = re.compile(r"^spark://([^,:/\s]+):(\d+)")
# Whatever the port, the route is the same.
_ANY_PORT = 9
_LOOPBACK = ("127.", "::1", "localhost")


def address_toward_master(master: str) -> str:
    """Return the address of this host's network interface on the way to a Spark master; of any host without one.

    SPARK_LOCAL_IP takes precedence, as for Spark, unless no other host reaches it: a session on this host's own cores
    sets it to 127.0.0.1 for the whole process, which may be one of Dagster's.
    """
    given = os.environ.get("SPARK_LOCAL_IP", "")
    if given and not given.startswith(_LOOPBACK):
        return given
    found = _FIRST_MASTER.match(master)
    host, port = (found[1], int(found[2])) if found else (socket.gethostname(), _ANY_PORT)
    try:
        # UDP: nothing is sent.
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, port))
            return str(probe.getsockname()[0])
    except OSError:
        return socket.gethostname()
