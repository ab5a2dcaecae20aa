"""Pages of others cannot send the forms, nor read the pages; links to them work."""

import pytest

from tests.server.api.conftest import Api, deduplicating
from tests.server.ui.conftest import send_to

RESUME = "/ui/pipelines/orders-clean/resume"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "http://evil.test"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://127.0.0.1:3000"}, 403),
        # A browser sends Origin with each form; what does not may be anything.
        ({}, 415),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, 403),
    ],
)
def test_a_form_of_another_origin_is_refused(site: Api, headers: dict[str, str], status: int) -> None:
    site.write(deduplicating())
    assert send_to(site, RESUME, data={"a": "b"}, headers=headers).status_code == status
    assert site.status("orders-clean") == "Stopped"


def test_a_form_is_no_body_of_the_api(site: Api) -> None:
    answer = send_to(site, "/api/v1/pipeline", data={"pipeline_id": "orders"}, headers={"origin": site.url})
    assert answer.status_code == 415


def test_a_name_that_is_not_this_host_is_refused(site: Api) -> None:
    assert site.get("/ui/", headers={"host": "evil.test"}).status_code == 421


@pytest.mark.parametrize("site_of", ["cross-site", "same-site"])
def test_a_link_of_another_page_is_followed_but_not_read_by_its_script(site: Api, site_of: str) -> None:
    link = {"sec-fetch-site": site_of, "sec-fetch-mode": "navigate"}
    assert site.get("/ui/", headers=link).status_code == 200
    assert site.get("/ui/", headers={**link, "sec-fetch-mode": "cors"}).status_code == 403
    assert site.get("/api/v1/pipeline", headers=link).status_code == 403


def test_a_page_allows_only_its_own_scripts_and_no_frame(site: Api) -> None:
    policy = site.get("/ui/").headers["content-security-policy"]
    assert "script-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    # With `no-referrer` a browser would send its forms with "Origin: null".
    assert site.get("/ui/").headers.get_list("referrer-policy") == ["same-origin"]


def test_a_form_with_too_many_fields_or_no_text_is_refused(site: Api) -> None:
    headers = {"origin": site.url, "content-type": "application/x-www-form-urlencoded"}
    for body in ("a=1&" * 6000, b"a=\xff"):
        answer = send_to(site, "/ui/new/gone/kafka", content=body, headers=headers)
        assert answer.status_code in {400, 404}
    assert send_to(site, "/ui/new/gone/kafka", content="a" * 300_000, headers=headers).status_code == 413


def test_what_was_written_into_a_definition_is_no_markup(site: Api) -> None:
    site.write(deduplicating(name="<script>alert(1)</script>"))
    for path in ("/ui/", "/ui/pipelines/orders-clean", "/ui/pipelines/orders-clean/definition"):
        text = site.get(path).text
        assert "<script>alert" not in text
        assert "&lt;script&gt;alert" in text
