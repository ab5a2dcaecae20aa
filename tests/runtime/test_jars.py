"""The jars of the lock: fetched once, several at a time, and only with the content that the lock names."""

import base64
import hashlib
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.runtime import download, jars
from glassflow_dagster.runtime.jar_lock import Jar
from glassflow_dagster.runtime.jars import ensure_jars
from tests.runtime.maven_repository import MavenRepository, serving

IVY_SETTINGS = """\
<ivysettings>
  <settings defaultResolver="repository"/>
  <resolvers>
    <filesystem name="repository" m2compatible="true">
      <ivy pattern="{root}/[organisation]/[module]/[revision]/[artifact]-[revision].pom"/>
      <artifact pattern="{root}/[organisation]/[module]/[revision]/[artifact]-[revision](-[classifier]).[ext]"/>
    </filesystem>
  </resolvers>
</ivysettings>
"""


def _jar(artifact: str, content: bytes, classifier: str = "") -> Jar:
    return Jar("org.example.jars", artifact, "1.2.3", classifier, hashlib.sha256(content).hexdigest())


CONTENTS = {_jar("one", b"1" * 100_000): b"1" * 100_000, _jar("two", b"2", "shaded"): b"2", _jar("three", b"3"): b"3"}
ONE, TWO, THREE = CONTENTS


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use an empty cache, a lock with three jars in each group, and no mirror."""
    monkeypatch.setenv("GLASSFLOW_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("GLASSFLOW_IVY_SETTINGS", raising=False)
    monkeypatch.setattr(jars, "locked_jars", lambda _: list(CONTENTS))
    monkeypatch.setattr(download, "PAUSES", (0.001, 0.001, 0.001))
    return tmp_path / "cache"


@pytest.fixture
def repository(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MavenRepository]:  # noqa: ARG001 - of the test
    """Serve the three jars, and name the server as the mirror."""
    with serving() as served:
        for jar, content in CONTENTS.items():
            served.publish(jar, content)
        monkeypatch.setenv("GLASSFLOW_MAVEN_REPOSITORY", served.address)
        yield served


def _read(paths: list[Path]) -> list[bytes]:
    return [path.read_bytes() for path in paths]


def _stored(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.rglob("*.jar"))


@pytest.mark.servers
@pytest.mark.parametrize("group", ["spark", "broker"])
def test_jars_in_the_cache_are_not_fetched_again(group: str) -> None:
    paths = ensure_jars(group, lambda _: None)
    reports: list[str] = []
    assert ensure_jars(group, reports.append) == paths
    assert reports == []
    assert paths
    assert all(path.stat().st_size for path in paths)


def test_the_jars_of_the_lock_are_fetched_once_with_progress(cache: Path, repository: MavenRepository) -> None:
    reports: list[str] = []
    paths = ensure_jars("spark", reports.append)
    assert _read(paths) == list(CONTENTS.values())
    assert [path.name for path in paths] == ["one-1.2.3.jar", "two-1.2.3-shaded.jar", "three-1.2.3.jar"]
    assert {path.parent.parent for path in paths} == {cache / "jars"}
    assert reports[0] == "fetching the spark jars (once)"
    assert reports[1:] == ["1 of 3 jars", "2 of 3 jars", "3 of 3 jars", "3 spark jars ready"]
    assert ensure_jars("spark", reports.append) == paths
    assert len(repository.asked) == 3


def test_one_lost_jar_alone_is_fetched_again(repository: MavenRepository) -> None:
    paths = ensure_jars("spark", lambda _: None)
    paths[1].unlink()
    assert _read(ensure_jars("spark", lambda _: None)) == list(CONTENTS.values())
    assert [repository.asked_for(jar) for jar in CONTENTS] == [1, 2, 1]


def test_two_at_once_fetch_once(repository: MavenRepository) -> None:
    reports: list[str] = []
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: ensure_jars("spark", reports.append), range(2))
    assert first == second
    assert reports.count("fetching the spark jars (once)") == 1
    assert len(repository.asked) == 3


@pytest.mark.parametrize("fault", [503, 429, "cut"])
def test_a_passing_fault_is_tried_again(repository: MavenRepository, fault: int | str) -> None:
    repository.fail(ONE, fault, fault)
    assert _read(ensure_jars("spark", lambda _: None)) == list(CONTENTS.values())
    assert repository.asked_for(ONE) == 3


def test_a_jar_with_another_content_is_never_used(cache: Path, repository: MavenRepository) -> None:
    repository.publish(TWO, b"another")
    with pytest.raises(GlassflowError, match=r"org\.example\.jars:two:1\.2\.3:shaded \(its SHA-256 is .*jars\.lock"):
        ensure_jars("spark", lambda _: None)
    assert TWO.name not in _stored(cache)


def test_an_answer_that_always_ends_early_is_an_error(cache: Path, repository: MavenRepository) -> None:
    repository.fail(ONE, *["cut"] * 10)
    with pytest.raises(GlassflowError, match=r"org\.example\.jars:one"):
        ensure_jars("spark", lambda _: None)
    assert ONE.name not in _stored(cache)


def test_after_an_error_only_the_missing_jars_are_fetched(cache: Path, repository: MavenRepository) -> None:
    repository.fail(THREE, 404)
    with pytest.raises(GlassflowError, match=r"org\.example\.jars:three:1\.2\.3 \(HTTP 404"):
        ensure_jars("spark", lambda _: None)
    stored = _stored(cache)
    asked = {jar: repository.asked_for(jar) for jar in CONTENTS}
    ensure_jars("spark", lambda _: None)
    again = {jar for jar in CONTENTS if repository.asked_for(jar) > asked[jar]}
    assert again == {jar for jar in CONTENTS if jar.name not in stored}
    assert THREE in again


def test_a_host_without_a_network_is_told_what_to_do(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as ended:
        monkeypatch.setenv("GLASSFLOW_MAVEN_REPOSITORY", ended.address)
    with pytest.raises(GlassflowError) as raised:
        ensure_jars("s3", lambda _: None)
    text = str(raised.value)
    assert "\n" not in text
    assert text.startswith("could not fetch org.example.jars:")
    assert "Connection refused" in text
    for remedy in (
        "GLASSFLOW_MAVEN_REPOSITORY=URL",
        "GLASSFLOW_IVY_SETTINGS=FILE",
        "`python -m glassflow_dagster.runtime.jars s3` on a machine that has access, and copy its "
        + str(cache / "jars"),
    ):
        assert remedy in text


def test_a_password_of_the_address_is_sent_and_not_shown(
    repository: MavenRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLASSFLOW_MAVEN_REPOSITORY", repository.address.replace("//", "//reader:s%40cret@"))
    ensure_jars("spark", lambda _: None)
    basic = base64.b64encode(b"reader:s@cret").decode()
    assert {headers["Authorization"] for _, headers in repository.asked} == {f"Basic {basic}"}
    repository.fail(ONE, 401)
    with pytest.raises(GlassflowError, match="HTTP 401") as raised:
        ensure_jars("broker", lambda _: None)
    assert "cret" not in str(raised.value)


@pytest.mark.usefixtures("cache")
def test_a_folder_serves_as_a_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for jar, content in CONTENTS.items():
        file = tmp_path / "copy" / jar.path
        file.parent.mkdir(parents=True)
        file.write_bytes(content)
    monkeypatch.setenv("GLASSFLOW_MAVEN_REPOSITORY", (tmp_path / "copy").as_uri())
    assert _read(ensure_jars("spark", lambda _: None)) == list(CONTENTS.values())


@pytest.fixture
def ivy_repository(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:  # noqa: ARG001 - of the test
    """Publish the three jars in a folder that an Ivy settings file alone names."""
    root = tmp_path / "ivy-repository"
    for jar, content in CONTENTS.items():
        folder = root.joinpath(*jar.group.split("."), jar.artifact, jar.version)
        folder.mkdir(parents=True)
        (folder / jar.name).write_bytes(content)
        (folder / f"{jar.artifact}-{jar.version}.pom").write_text(
            f"<project><modelVersion>4.0.0</modelVersion><groupId>{jar.group}</groupId><packaging>bundle</packaging>"
            f"<artifactId>{jar.artifact}</artifactId><version>{jar.version}</version></project>"
        )
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(IVY_SETTINGS.format(root=root))
    monkeypatch.setenv("GLASSFLOW_IVY_SETTINGS", str(settings))
    return root


@pytest.mark.usefixtures("ivy_repository")
def test_an_ivy_settings_file_says_where_the_jars_come_from() -> None:
    reports: list[str] = []
    paths = ensure_jars("spark", reports.append)
    assert _read(paths) == list(CONTENTS.values())
    assert "3 of 3 jars" in reports
    # Nothing of Ivy's stays.
    assert sorted(path.name for path in paths[0].parent.iterdir()) == sorted(path.name for path in paths)


def test_ivy_does_not_go_past_the_lock(cache: Path, ivy_repository: Path) -> None:
    [two] = ivy_repository.rglob(TWO.name)
    two.write_bytes(b"another")
    with pytest.raises(GlassflowError, match=r"two:1\.2\.3:shaded \(its SHA-256 is .*GLASSFLOW_IVY_SETTINGS"):
        ensure_jars("spark", lambda _: None)
    assert not (cache / "jars").joinpath(TWO.name).exists()
    two.write_bytes(b"2")
    assert _read(ensure_jars("spark", lambda _: None)) == list(CONTENTS.values())


def test_what_ivy_cannot_find_is_named(ivy_repository: Path) -> None:
    [three] = ivy_repository.rglob(THREE.name)
    three.unlink()
    with pytest.raises(GlassflowError, match=r"org\.example\.jars.*three.*GLASSFLOW_IVY_SETTINGS") as raised:
        ensure_jars("spark", lambda _: None)
    assert "\n" not in str(raised.value)


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GLASSFLOW_CACHE", str(tmp_path / "file"))
    with pytest.raises(GlassflowError, match=r"file/jars.*cannot be written.*GLASSFLOW_CACHE"):
        ensure_jars("spark", lambda _: None)


def test_the_command_fetches_the_groups_that_are_named(
    repository: MavenRepository, capsys: pytest.CaptureFixture[str]
) -> None:
    assert jars.main(["s3", "broker"]) == 0
    assert "3 s3 jars in " in (out := capsys.readouterr().out)
    assert "3 broker jars in " in out
    assert jars.main(["s4"]) == 2
    assert "s4: is no group of jars; choose from spark, broker, msk" in capsys.readouterr().out
    assert len(repository.asked) == 6


def test_the_package_imports_neither_spark_nor_dagster() -> None:
    modules = ["cache", "java", "jars", "trust", "process"]
    imports = "; ".join(f"import glassflow_dagster.runtime.{module}" for module in modules)
    code = f"import sys; {imports}; print([name for name in ('pyspark', 'dagster') if name in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
