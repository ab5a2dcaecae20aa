import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.runtime.jars import ensure_jars

JARS = [
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
    ("com.google.re2j", "re2j", "1.8"),
    ("com.squareup.wire", "wire-schema-jvm", "5.3.1"),
]

SETTINGS = """\
<ivysettings>
  <settings defaultResolver="repository"/>
  <resolvers>
    <filesystem name="repository" m2compatible="true">
      <ivy pattern="{root}/[organisation]/[module]/[revision]/[artifact]-[revision].pom"/>
      <artifact pattern="{root}/[organisation]/[module]/[revision]/[artifact]-[revision].[ext]"/>
    </filesystem>
  </resolvers>
</ivysettings>
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GLASSFLOW_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use an empty folder as the only Maven repository."""
    root = tmp_path / "repository"
    root.mkdir()
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(SETTINGS.format(root=root))
    monkeypatch.setenv("GLASSFLOW_IVY_SETTINGS", str(settings))
    return root


def _publish(root: Path) -> None:
    for organisation, name, version in JARS:
        _publish_jar(root, organisation, name, version)


def _publish_jar(root: Path, organisation: str, name: str, version: str) -> None:
    folder = root.joinpath(*organisation.split("."), name, version)
    folder.mkdir(parents=True)
    (folder / f"{name}-{version}.pom").write_text(
        f"<project><modelVersion>4.0.0</modelVersion><groupId>{organisation}</groupId>"
        f"<artifactId>{name}</artifactId><version>{version}</version></project>"
    )
    with zipfile.ZipFile(folder / f"{name}-{version}.jar", "w") as jar:
        jar.writestr("marker", name)


def _nothing_but_locks_and_ivys_cache(cache: Path) -> bool:
    return not [path for path in cache.rglob("*.jar") if "ivy-cache" not in str(path)] and not list(
        cache.rglob("complete.txt")
    )


@pytest.mark.servers
@pytest.mark.parametrize("configuration", ["spark", "broker"])
def test_jars_in_the_cache_are_not_fetched_again(configuration: str) -> None:
    jars = ensure_jars(configuration, lambda _: None)
    reports: list[str] = []
    assert ensure_jars(configuration, reports.append) == jars
    assert reports == []
    assert jars
    assert all(jar.stat().st_size for jar in jars)


def test_fetched_jars_are_reported_and_kept(cache: Path, repository: Path) -> None:
    _publish(repository)
    reports: list[str] = []
    jars = ensure_jars("spark", reports.append)
    assert [jar.name for jar in jars] == [
        "re2j-1.8.jar",
        "spark-sql-kafka-0-10_2.13-4.2.0.jar",
        "wire-schema-jvm-5.3.1.jar",
    ]
    assert jars[0].is_relative_to(cache)
    assert "3 of 3 jars" in reports
    repository.rename(repository.with_name("gone"))
    assert ensure_jars("spark", reports.append) == jars


@pytest.mark.usefixtures("cache")
def test_a_lost_jar_is_fetched_again(repository: Path) -> None:
    _publish(repository)
    jars = ensure_jars("spark", lambda _: None)
    jars[0].unlink()
    assert ensure_jars("spark", lambda _: None) == jars
    assert jars[0].exists()


@pytest.mark.usefixtures("cache")
def test_two_at_once_fetch_once(repository: Path) -> None:
    _publish(repository)
    reports: list[str] = []
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: ensure_jars("spark", reports.append), range(2))
    assert first == second
    assert reports.count("fetching the spark jars (once)") == 1


@pytest.mark.usefixtures("repository")
def test_what_cannot_be_fetched_is_named_with_the_remedy_and_nothing_stays(cache: Path) -> None:
    with pytest.raises(GlassflowError) as raised:
        ensure_jars("spark", lambda _: None)
    text = str(raised.value)
    assert "\n" not in text
    assert "org.apache.spark#spark-sql-kafka-0-10_2.13;4.2.0" in text
    assert "GLASSFLOW_IVY_SETTINGS" in text
    assert _nothing_but_locks_and_ivys_cache(cache)


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GLASSFLOW_CACHE", str(tmp_path / "file"))
    with pytest.raises(GlassflowError, match=r"file/jars.*cannot be written.*GLASSFLOW_CACHE"):
        ensure_jars("spark", lambda _: None)


def test_the_package_imports_neither_spark_nor_dagster() -> None:
    modules = ["cache", "java", "jars", "trust", "process"]
    imports = "; ".join(f"import glassflow_dagster.runtime.{module}" for module in modules)
    code = f"import sys; {imports}; print([name for name in ('pyspark', 'dagster') if name in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
