"""What the commands take from their environment; what they do is tested where it is done, and end to end."""

from pathlib import Path

from click.testing import CliRunner

from glassflow_dagster.cli import main


def test_the_state_folder_is_the_one_that_dagster_uses_unless_an_option_names_another(tmp_path: Path) -> None:
    named, other = str(tmp_path / "named"), str(tmp_path / "other")
    found = CliRunner().invoke(main, ["stop", "orders"], env={"GLASSFLOW_STATE": named})
    assert found.exit_code == 1
    assert f"{named}: no pipeline called 'orders' ever ran here" in found.output
    found = CliRunner().invoke(main, ["stop", "orders", "--state", other], env={"GLASSFLOW_STATE": named})
    assert f"{other}: no pipeline called 'orders' ever ran here" in found.output


def test_a_definition_with_mistakes_hides_no_other_from_the_status(tmp_path: Path) -> None:
    (tmp_path / "wrong.yaml").write_text("a: [")
    (tmp_path / "nameless.yaml").write_text("a: 1")
    (tmp_path / "orders.yaml").write_text("pipeline_id: orders")
    found = CliRunner().invoke(main, ["status", "--pipelines", str(tmp_path), "--state", str(tmp_path / "state")])
    assert (found.exit_code, found.stdout) == (0, "orders: STOPPED - never started here\n")
