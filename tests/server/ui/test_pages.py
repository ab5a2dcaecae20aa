"""Pages without a browser and without drivers: what they show of definitions, edits, versions and errors."""

from pathlib import Path
from typing import Any

import pytest

from glassflow_dagster.control.heartbeat import pipeline_folder
from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.definition.yaml_text import write_yaml
from glassflow_dagster.server.api.files import PRIVATE
from glassflow_dagster.stream.checkpoint.checkpoint import Checkpoint
from tests.server.api.conftest import SECRET, Api, deduplicating
from tests.server.ui.conftest import send_form

PIPELINE = "/ui/pipelines/orders-clean"


def etag(api: Api) -> str:
    stored = api.services.catalog.stored("orders-clean")
    return stored.etag


def test_the_first_page_explains_what_to_do_where_there_is_no_pipeline(site: Api) -> None:
    answer = site.get("/", follow_redirects=True)
    assert answer.url.path == "/ui/"
    assert "Make the first pipeline" in answer.text


def test_the_first_page_lists_pipelines_with_their_states(site: Api) -> None:
    site.write(deduplicating())
    text = site.get("/ui/").text
    assert 'href="/ui/pipelines/orders-clean"' in text
    assert "Stopped" in text
    assert "never started here" in text
    assert "orders-clean" in site.get("/ui/parts/pipelines").text


def test_a_pipelines_page_says_what_it_does_and_links_to_its_assets(site: Api) -> None:
    site.write(deduplicating())
    text = site.get(PIPELINE).text
    assert "orders → d.orders" in text
    assert "by order_id within 1h" in text
    assert 'href="http://127.0.0.1:3000/asset-groups?asset-selection=group%3A%22orders_clean%22"' in text


def test_an_invalid_definition_is_shown_with_its_mistakes(site: Api) -> None:
    definition = deduplicating()
    definition["sink"]["mapping"][0]["column_type"] = "Int12"
    site.write(definition)
    answer = site.get(PIPELINE)
    assert answer.status_code == 200
    assert "sink.mapping[0].column_type" in answer.text
    assert 'id="resume"' not in answer.text


def test_no_page_shows_a_secret(site: Api) -> None:
    site.write(deduplicating())
    for path in ("", "/definition", "/definition/edit"):
        text = site.get(f"{PIPELINE}{path}").text
        assert SECRET not in text
    assert "********" in text


def test_what_is_unknown_is_a_page_that_says_so(site: Api) -> None:
    for path in ("/ui/nowhere", "/ui/pipelines/nobody", "/ui/static/nothing.js", "/ui/new/gone/kafka"):
        answer = site.get(path)
        assert (answer.status_code, answer.headers["content-type"]) == (404, "text/html; charset=utf-8")
        assert "<h1>This was not done</h1>" in answer.text


def test_a_file_outside_of_the_static_ones_is_not_served(site: Api) -> None:
    assert site.get("/ui/static/..%2Frendering.py").status_code == 404
    assert site.get("/ui/static/style.css").headers["cache-control"] == "max-age=3600"


def test_an_edit_shows_the_difference_and_that_a_pipeline_without_checkpoint_may_change(site: Api) -> None:
    site.write(deduplicating())
    edited = write_yaml(deduplicating(name="Edited", password="********"))
    text = send_form(site, f"{PIPELINE}/definition/edit", text=edited, etag=etag(site)).text
    assert "+name: Edited" in text
    assert "-name: Clean orders" in text
    assert "no checkpoint yet" in text
    assert 'formaction="/ui/pipelines/orders-clean/definition/save"' in text


def test_an_edit_with_mistakes_shows_each_and_cannot_be_saved(site: Api) -> None:
    site.write(deduplicating())
    definition = deduplicating(password="********", unknown_key=1)
    answer = send_form(site, f"{PIPELINE}/definition/edit", text=write_yaml(definition), etag=etag(site))
    assert "unknown_key" in answer.text
    assert "definition/save" not in answer.text
    saved = send_form(site, f"{PIPELINE}/definition/save", text=write_yaml(definition), etag=etag(site))
    assert saved.status_code == 422
    assert not (site.folder / PRIVATE / "history").exists()


def with_checkpoint(site: Api, definition: dict[str, Any]) -> Path:
    """Write a definition, and the checkpoint that its first start would create."""
    file = site.write(definition)
    folder = pipeline_folder(site.state, definition["pipeline_id"])
    (folder / "checkpoint").mkdir(parents=True)
    Checkpoint(folder / "checkpoint").create(load_pipeline(file), 0, 2)
    return file


@pytest.mark.parametrize(
    ("part", "change", "says", "allowed"),
    [
        ("metadata", {"tags": ["new"]}, "events become the same rows as before", True),
        ("window", "2h", "later ones use the new one", True),
        ("key", "amount", "was built for deduplication by order_id string", False),
        ("table", "others", "writes to d.orders", False),
    ],
)
def test_an_edit_says_what_it_means_for_the_checkpoint(
    site: Api, part: str, change: Any, says: str, allowed: bool
) -> None:
    with_checkpoint(site, deduplicating())
    edited = deduplicating(password="********")
    match part:
        case "metadata":
            edited["metadata"] = change
        case "window":
            edited["transforms"][0]["config"]["time_window"] = change
        case "key":
            edited["transforms"][0]["config"]["key"] = change
        case _:
            edited["sink"]["table"] = change
    form = {"text": write_yaml(edited), "etag": etag(site)}
    text = send_form(site, f"{PIPELINE}/definition/edit", **form).text
    assert says in text
    assert ("Allowed." if allowed else "Refused.") in text
    saved = send_form(site, f"{PIPELINE}/definition/save", **form)
    assert saved.status_code == (303 if allowed else 400)


def test_a_saved_edit_is_a_version_to_which_one_can_go_back(site: Api) -> None:
    site.write(deduplicating())
    form = {"text": write_yaml(deduplicating(name="Edited", password="********")), "etag": etag(site)}
    assert send_form(site, f"{PIPELINE}/definition/save", **form).headers["location"] == PIPELINE
    site.wait_for("orders-clean", "Failed")
    assert "/definition/versions/1" in site.get(f"{PIPELINE}/definition").text
    version = site.get(f"{PIPELINE}/definition/versions/1").text
    assert "+name: Clean orders" in version
    back = send_form(site, f"{PIPELINE}/definition/rollback", version="1", etag=etag(site))
    assert back.status_code == 303
    assert site.services.catalog.stored("orders-clean").raw["name"] == "Clean orders"


def test_an_edit_of_an_older_version_is_refused(site: Api) -> None:
    site.write(deduplicating())
    form = {"text": write_yaml(deduplicating(name="Edited", password="********")), "etag": '"older"'}
    answer = send_form(site, f"{PIPELINE}/definition/save", **form)
    assert answer.status_code == 412
    assert "has changed since" in answer.text


def test_what_a_form_changes_is_in_the_audit_log(site: Api) -> None:
    site.write(deduplicating())
    assert send_form(site, f"{PIPELINE}/resume").status_code == 303
    site.wait_for("orders-clean", "Failed")
    assert send_form(site, f"{PIPELINE}/delete").headers["location"] == "/ui/"
    log = (site.folder / PRIVATE / "audit.jsonl").read_text()
    assert log.count('"path": "/ui/pipelines/orders-clean/resume"') == 1
    assert log.count('"path": "/ui/pipelines/orders-clean/delete"') == 1


def test_a_refused_change_says_why(site: Api) -> None:
    site.write(deduplicating())
    answer = send_form(site, f"{PIPELINE}/stop")
    assert answer.status_code == 400
    assert "Invalid status transition from Stopped to Stopping" in answer.text


def test_dead_letters_and_batches_say_that_the_server_does_not_answer(site: Api) -> None:
    site.write(deduplicating())
    for page in ("dead-letters", "ledger", "checks/run"):
        answer = site.get(f"{PIPELINE}/{page}")
        assert answer.status_code == 200
        assert "127.0.0.1:1" in answer.text


def test_the_keys_of_a_definition_can_be_looked_up(site: Api) -> None:
    text = site.get("/ui/parts/keys", params={"q": "max_batch_size"}).text
    assert "<code>sink.max_batch_size</code>" in text
    assert "No key has this word" in site.get("/ui/parts/keys", params={"q": "nonsense"}).text
    assert "unmatched" not in site.get("/ui/parts/keys").text
