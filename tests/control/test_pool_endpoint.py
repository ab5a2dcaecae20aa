"""How drivers find the process of a pool, and what it answers."""

import os
import socket
import stat
import threading
from pathlib import Path
from unittest.mock import Mock

import pytest
from pydantic import BaseModel

from glassflow_dagster.control.pool_endpoint import (
    Endpoint,
    Reply,
    Request,
    pool_folder,
    pools_in,
    read_endpoint,
    receive_line,
    remove_endpoint,
    send_line,
    write_endpoint,
)
from glassflow_dagster.control.pool_launch import (
    ask,
    attached_pipelines,
    connect,
    ensure_pool,
    pool_environment,
    start_pool,
    stop_pool,
)
from glassflow_dagster.driver.pool.server import Attachments
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.runtime.process import start_of


def own_endpoint(port: int = 1, **changes: object) -> Endpoint:
    """Return an endpoint whose process is this one."""
    pid = os.getpid()
    return Endpoint.model_validate({"pid": pid, "started": start_of(pid), "port": port, "token": "t", **changes})


def test_only_the_user_can_read_the_endpoint_of_a_running_process(tmp_path: Path) -> None:
    folder = pool_folder(tmp_path, "small")
    assert read_endpoint(folder) is None
    assert pools_in(tmp_path) == []
    write_endpoint(folder, own_endpoint())
    assert read_endpoint(folder) == own_endpoint()
    assert pools_in(tmp_path) == ["small"]
    (file,) = folder.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    # Of a process that has ended, whose id another one has now.
    write_endpoint(folder, own_endpoint(started="0"))
    assert read_endpoint(folder) is None
    file.write_text("{")
    assert read_endpoint(folder) is None
    remove_endpoint(folder)
    assert read_endpoint(folder) is None
    assert not stop_pool(tmp_path, "small")


def test_a_pool_of_another_version_is_refused(tmp_path: Path) -> None:
    write_endpoint(pool_folder(tmp_path, "small"), own_endpoint(version="0.0.1"))
    with pytest.raises(GlassflowError, match=r"is of version 0\.0\.1, not .*glassflow-dagster pool stop small --state"):
        ensure_pool(tmp_path, "small", print)


def test_settings_stay_with_the_pool_and_names_are_no_paths(tmp_path: Path) -> None:
    folder = pool_folder(tmp_path, "small")
    write_endpoint(folder, own_endpoint())
    (folder / "settings.json").write_text('{"spark.driver.memory": "2g"}')
    assert start_pool(tmp_path, "small", print, {"spark.driver.memory": "2g"}) == own_endpoint()
    with pytest.raises(GlassflowError, match="runs with other settings; stop it first"):
        start_pool(tmp_path, "small", print, {})
    remove_endpoint(folder)
    (folder / "settings.json").write_text("[")
    with pytest.raises(GlassflowError, match=r"settings\.json: is damaged; .*pool start small --conf"):
        ensure_pool(tmp_path, "small", print)
    with pytest.raises(GlassflowError, match="is not the name of a pool"):
        ensure_pool(tmp_path, "../small", print)


def test_a_pool_inherits_nothing_of_the_first_pipelines_own() -> None:
    of_machine = {"PATH": "/bin", "JAVA_HOME": "/java", "LC_ALL": "C", "https_proxy": "http://proxy"}
    of_pipeline = {
        "GLASSFLOW_CONNECTIONS": "{}", "GLASSFLOW_CLICKHOUSE_URL": "http://u:secret@h:1", "AWS_SECRET_ACCESS_KEY": "s",
        "PYSPARK_SUBMIT_ARGS": "--master local[1] pyspark-shell", "SPARK_CONF_DIR": "/conf", "GLASSFLOW_DRIVER": "mark",
        "KAFKA_PASSWORD": "of a definition",
    }  # fmt: skip
    assert pool_environment({**of_machine, **of_pipeline}) == of_machine


def test_a_setting_that_the_guarantees_depend_on_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GlassflowError, match=r"^--conf: spark\.speculation cannot be set"):
        start_pool(tmp_path, "small", print, {"spark.speculation": "true"})
    # Nothing that a later start would find.
    assert not pool_folder(tmp_path, "small").exists()


def one_attached() -> Attachments:
    """Return the attachments of a pool with one driver, without a JVM."""
    return Attachments(Mock(), "right", Mock(), Mock(), attached={"orders": threading.Event()})


def answered(request: BaseModel | bytes, attachments: Attachments | None = None) -> Reply | None:
    """Return a pool's reply to a request."""
    here, there = socket.socketpair()
    attachments = attachments or one_attached()
    thread = threading.Thread(target=attachments.serve, args=(there,))
    thread.start()
    with here:
        if isinstance(request, bytes):
            here.sendall(request)
        else:
            send_line(here, request)
        reply = receive_line(here, Reply)
    thread.join()
    return reply


def test_a_request_needs_the_token() -> None:
    assert answered(Request(token="right", pipeline=None)) == Reply(pipelines=["orders"])
    for request in (Request(token="wrong", pipeline="orders"), b"{}\n", b"GET / HTTP/1.1\r\n\r\n"):
        reply = answered(request)
        assert reply
        assert reply.error == "the request has not the pool's token"


def test_a_pool_that_ends_takes_no_driver_and_one_with_a_driver_does_not_end() -> None:
    attachments = one_attached()
    assert not attachments.end_if_idle()
    attachments.attached.clear()
    assert attachments.end_if_idle()
    assert answered(Request(token="right", pipeline="orders"), attachments) == Reply(is_ending=True)


def test_a_pool_that_ends_or_does_not_listen_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        endpoint = own_endpoint(listener.getsockname()[1])
        with connect(endpoint) as connection:
            accepted, _ = listener.accept()
            accepted.close()
            with pytest.raises(GlassflowError, match=r"the pool (has ended before it answered|does not answer)"):
                ask(connection, Request(token="t", pipeline=None))
    with pytest.raises(GlassflowError, match=f"process of the pool \\(pid {os.getpid()}\\) does not answer"):
        attached_pipelines(endpoint)


def test_a_line_without_an_end_is_no_message() -> None:
    here, there = socket.socketpair()
    with here, there:
        sender = threading.Thread(target=lambda: (here.sendall(b"x" * 100_000), here.close()))
        sender.start()
        assert receive_line(there, Reply) is None
        there.close()
        sender.join()
