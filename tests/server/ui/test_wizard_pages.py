"""The steps as forms, without servers and scripts: what is refused, kept, and never sent back."""

import html

import pytest

from glassflow_dagster.server.wizard.steps import STEPS
from tests.server.api.conftest import SECRET, deduplicating
from tests.server.ui.conftest import Site, send_form
from tests.server.wizard.drafts import answered


@pytest.fixture
def draft_id(site: Site) -> str:
    """Begin a draft whose steps are answered, except the last; return its id."""
    location = send_form(site, "/ui/new").headers["location"]
    assert location.endswith("/kafka")
    found = location.split("/")[-2]
    site.pages.drafts.get(found).draft = answered()
    return found


def test_a_step_leads_back_to_the_first_one_that_is_open(site: Site, draft_id: str) -> None:
    site.pages.drafts.get(draft_id).draft.done = {"kafka"}
    answer = site.get(f"/ui/new/{draft_id}/review")
    assert answer.headers["location"] == f"/ui/new/{draft_id}/topic"


def test_an_unknown_step_is_a_page_that_says_so(site: Site, draft_id: str) -> None:
    assert site.get(f"/ui/new/{draft_id}/nothing").status_code == 404


def test_refused_answers_are_shown_again_with_the_reason_and_without_the_password(site: Site, draft_id: str) -> None:
    form = {"brokers": "127.0.0.1:1", "protocol": "SASL_SSL", "username": "", "password": SECRET, "action": "next"}
    answer = send_form(site, f"/ui/new/{draft_id}/kafka", **form)
    assert answer.status_code == 422
    text = html.unescape(answer.text)
    assert "SASL_SSL with PLAIN needs it" in text
    assert 'value="127.0.0.1:1"' in text
    assert SECRET not in text


def test_a_password_that_was_given_is_not_in_any_step(site: Site, draft_id: str) -> None:
    draft = site.pages.drafts.get(draft_id).draft
    draft.kafka = {**(draft.kafka or {}), "protocol": "SASL_SSL", "mechanism": "PLAIN", "username": "u",
                   "password": SECRET}  # fmt: skip
    for step in STEPS:
        text = site.get(f"/ui/new/{draft_id}/{step.name}").text
        assert SECRET not in text
    assert "********" in site.get(f"/ui/new/{draft_id}/review").text


def test_the_page_proposes_no_table_of_another_pipeline_and_refuses_it(site: Site, draft_id: str) -> None:
    site.write(deduplicating(table="analytics.orders"))
    refused = send_form(site, f"/ui/new/{draft_id}/review/deploy", pipeline_id="orders-again", name="")
    assert refused.status_code == 422
    assert "analytics.orders is also written by pipeline &#39;orders-clean&#39;; name another table" in refused.text
    assert not (site.folder / "orders-again.yaml").exists()
    draft = site.pages.drafts.get(draft_id).draft
    draft.target = None
    assert 'value="orders_with_users"' in site.get(f"/ui/new/{draft_id}/table").text


def test_an_answer_leads_to_the_next_step(site: Site, draft_id: str) -> None:
    answer = send_form(site, f"/ui/new/{draft_id}/batching", rows="5000", delay="2s", action="next")
    assert (answer.status_code, answer.headers["location"]) == (303, f"/ui/new/{draft_id}/review")
    assert "max_batch_size: 5000" in site.get(f"/ui/new/{draft_id}/review").text


def test_expressions_are_checked_while_one_types(site: Site, draft_id: str) -> None:
    wrong = send_form(site, f"/ui/live/{draft_id}/expressions", filter="amont > 0", computed="")
    assert "Filter: unknown field &#39;amont&#39;" in wrong.text
    assert "^^^^^" in wrong.text
    assert not send_form(site, f"/ui/live/{draft_id}/expressions", filter="amount > 0", computed="").text.strip()
    preview = send_form(site, f"/ui/live/{draft_id}/transform", filter="amont > 0", computed="")
    assert "as soon as the expressions are valid" in preview.text


def test_a_mapping_is_checked_while_one_types_with_the_name_of_the_field(site: Site, draft_id: str) -> None:
    form = {"use.0": "yes", "column.0": "order_id", "type.0": "Int12", "order_by": "order_id"}
    text = send_form(site, f"/ui/live/{draft_id}/columns", **form).text
    assert "<code>order_id</code>" in text
    assert "Int12" in text
    assert "Valid." in send_form(site, f"/ui/live/{draft_id}/columns", **{**form, "type.0": "String"}).text


def test_a_definition_is_checked_while_one_types(site: Site, draft_id: str) -> None:
    form = {"pipeline_id": "orders-new", "name": "", "text": "pipeline_id: orders-new"}
    text = send_form(site, f"/ui/live/{draft_id}/review", **form).text
    assert "<code>sources</code>" in text
    # What is typed is kept only once it is sent.
    assert site.pages.drafts.get(draft_id).draft.text is None


def test_a_deployed_pipeline_is_a_file_as_the_api_writes_it(site: Site, draft_id: str) -> None:
    form = {"pipeline_id": "orders-new", "name": "New", "text": ""}
    answer = send_form(site, f"/ui/new/{draft_id}/review/deploy", **form)
    assert (answer.status_code, answer.headers["location"]) == (303, "/ui/pipelines/orders-new")
    assert site.services.catalog.stored("orders-new").raw["name"] == "New"
    assert [each["version"] for each in site.get("/api/v1/pipeline/orders-new/history").json()] == [1]
    assert '"pipeline_id": "orders-new"' in site.services.audit.file.read_text()
    # The draft is done.
    assert site.get(f"/ui/new/{draft_id}/review").status_code == 404


def test_an_id_that_is_in_use_is_refused_and_the_draft_is_kept(site: Site, draft_id: str) -> None:
    form = {"pipeline_id": "orders-new", "name": "", "text": ""}
    other = send_form(site, "/ui/new").headers["location"].split("/")[-2]
    site.pages.drafts.get(other).draft = answered()
    assert send_form(site, f"/ui/new/{draft_id}/review/deploy", **form).status_code == 303
    answer = send_form(site, f"/ui/new/{other}/review/deploy", **form)
    assert answer.status_code == 422
    assert "pipeline with this ID already exists" in answer.text
    assert site.get(f"/ui/new/{other}/review").status_code == 200
