"""The address of this host, as another host reaches it."""

import os
import re
import socket

_FIRST_MASTER = re.compile(r"^spark://([^,:/\s]+):(\d+)")
# Whatever the port, the route is the same.
_ANY_PORT = 9


def address_toward_master(master: str) -> str:
    """Return the address of this host's network interface on the way to a Spark master; of any host without one.

    SPARK_LOCAL_IP takes precedence, as for Spark.
    """
    if given := os.environ.get("SPARK_LOCAL_IP"):
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
