"""The faults of replicas: what each does to them and to their ZooKeeper, at a moment drawn from its seed."""

import random
import time
from collections.abc import Callable
from functools import partial

from tests.faults.http_proxy import Exchange, Rule
from tests.faults.kinds import KINDS as USUAL_KINDS
from tests.faults.kinds import LEDGER, Kind, in_world
from tests.faults.servers import Server
from tests.faults.surroundings import ROWS, SKIPPED
from tests.replicas.fault_world import ReplicatedWorld
from tests.replicas.servers import SESSION_SECONDS

REPLICAS, QUORUM = "replicas", "quorum"
_BOTH = frozenset({REPLICAS, QUORUM})
# Some pauses outlast a session of ZooKeeper, most do not.
_LONGEST_PAUSE = 2 * SESSION_SECONDS
_INSERTS = (frozenset[str](), ROWS, LEDGER)


# Returns a fault of these worlds as one of any world.
_here = partial(in_world, ReplicatedWorld)


def _at_an_insert(world: ReplicatedWorld, draw: random.Random, strike: Callable[[Server], None]) -> Server:
    """Strike when a replica gets an insert, before or after it is executed there; return the replica."""
    struck: list[Server] = []

    def act(exchange: Exchange) -> None:
        if draw.random() < 0.5:
            exchange.forward()
        struck.append(next(replica for replica in world.servers.replicas if replica.port == exchange.upstream))
        strike(struck[0])
        exchange.hang_up()

    tables = draw.choice(_INSERTS)
    world.apply_rule(Rule(act, tables, draw.randrange(3 if tables == LEDGER else SKIPPED)))
    return struck[0]


def _replica_killed(world: ReplicatedWorld, draw: random.Random) -> int:
    _at_an_insert(world, draw, Server.kill)
    _pause(draw)
    world.servers.restart_ended()
    return 1


def _both_killed(world: ReplicatedWorld, draw: random.Random) -> int:
    def strike(_: Server) -> None:
        for replica in world.servers.replicas:
            replica.kill()

    _at_an_insert(world, draw, strike)
    _pause(draw)
    world.servers.restart_ended()
    return 1


def _killed_in_turn(world: ReplicatedWorld, draw: random.Random) -> int:
    """Kill the replica of an insert, and when it is back the other one, which has then served alone."""
    first = _at_an_insert(world, draw, Server.kill)
    _pause(draw)
    world.servers.restart_ended()
    next(replica for replica in world.servers.replicas if replica is not first).kill()
    _pause(draw)
    world.servers.restart_ended()
    return 2


def _driver_and_replica_killed(world: ReplicatedWorld, draw: random.Random) -> int:
    """Kill the driver and the replica of an insert; the next driver begins with the other replica alone."""

    def strike(replica: Server) -> None:
        world.driver.kill(world.driver.all)
        replica.kill()

    _at_an_insert(world, draw, strike)
    world.replace_driver()
    time.sleep(draw.uniform(0, 20))
    world.servers.restart_ended()
    return 1


def _replica_lost(world: ReplicatedWorld, draw: random.Random) -> int:
    lost = _at_an_insert(world, draw, Server.kill)
    _pause(draw)
    world.servers.replace(lost)
    return 1


def _replica_paused(world: ReplicatedWorld, draw: random.Random) -> int:
    return _paused(draw, draw.choice(world.servers.replicas))


def _keeper_paused(world: ReplicatedWorld, draw: random.Random) -> int:
    return _paused(draw, world.servers.keeper)


def _paused(draw: random.Random, server: Server) -> int:
    time.sleep(draw.uniform(0, 2))
    server.pause()
    _pause(draw)
    server.resume()
    return 1


def _keeper_killed(world: ReplicatedWorld, draw: random.Random) -> int:
    time.sleep(draw.uniform(0, 2))
    world.servers.keeper.kill()
    _pause(draw)
    world.servers.restart_ended()
    return 1


def _fetches_stopped(world: ReplicatedWorld, draw: random.Random) -> int:
    """Let a replica fetch no parts for a while, so that it lacks rows, and no quorum is reached."""
    time.sleep(draw.uniform(0, 2))
    client = world.servers.client_of(draw.choice(world.servers.replicas))
    client.command("SYSTEM STOP FETCHES")
    _pause(draw)
    client.command("SYSTEM START FETCHES")
    client.close()
    return 1


def _pause(draw: random.Random) -> None:
    time.sleep(draw.uniform(0, _LONGEST_PAUSE))


def _usual(name: str) -> Kind:
    """Return one of the faults of a single server."""
    kind = next(kind for kind in USUAL_KINDS if kind.name == name)
    return Kind(kind.name, "the same, in any replica", kind.inject, kind.dies, _BOTH)


KINDS = (
    Kind("no fault", "nothing: the reference for the other kinds", lambda *_: 1, workloads=_BOTH),
    *map(_usual, ("request cut", "answer cut", "answer swallowed", "late exception", "code 242")),
    *map(_usual, ("all killed", "killed behind an insert", "killed behind the ledger", "killed twice")),
    Kind(
        "replica killed", "kill -9 of a replica in an insert, applied or not; it is started again",
        _here(_replica_killed), workloads=_BOTH,
    ),
    Kind("replicas killed in turn", "the same, and then of the other one", _here(_killed_in_turn), workloads=_BOTH),
    Kind("both replicas killed", "kill -9 of both in an insert", _here(_both_killed), workloads=_BOTH),
    Kind(
        "driver and replica killed", "kill -9 of both in an insert; the next driver begins on the other replica",
        _here(_driver_and_replica_killed), dies=True, workloads=_BOTH,
    ),
    Kind(
        "replica lost", "kill -9 of a replica in an insert, its data are gone, and a new one takes its place",
        _here(_replica_lost), workloads=frozenset({QUORUM}),
    ),
    Kind("replica paused", "SIGSTOP of one, up to two sessions of ZooKeeper", _here(_replica_paused), workloads=_BOTH),
    Kind("replica lags", "one fetches no parts for up to two sessions", _here(_fetches_stopped), workloads=_BOTH),
    Kind("ZooKeeper paused", "SIGSTOP, up to two sessions", _here(_keeper_paused), workloads=_BOTH),
    Kind("ZooKeeper killed", "kill -9, restart on its data", _here(_keeper_killed), workloads=_BOTH),
)  # fmt: skip
