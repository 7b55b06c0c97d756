"""Sessions as they start on real machines: without Java, with an old one, quietly, and not at all."""

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from runnel.pipelines.errors import NoSpark
from runnel.pipelines.gateway import StderrFilter
from runnel.pipelines.session import start_session

COUNT = """
import sys
from runnel.pipelines.session import spark_session
with spark_session("probe", master="local[1]", on_message=lambda text: print("said:", text)) as session:
    print(session.range(10).count())
    java = session.sparkContext._jvm.java.lang.System
    print(java.getProperty("java.specification.version"))
    java.err.println("an error of Java's own")
"""


@pytest.fixture
def path_without_java(tmp_path: Path) -> Path:
    """A folder with a link to every program of this machine but java, and an old java in its place."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for place in os.get_exec_path():
        for program in Path(place).iterdir() if Path(place).is_dir() else ():
            if not program.name.startswith("java") and not (folder / program.name).is_symlink():
                (folder / program.name).symlink_to(program)
    old = folder / "java"
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    old.chmod(old.stat().st_mode | stat.S_IXUSR)
    return folder


@pytest.mark.long
@pytest.mark.slow
def test_with_an_old_java_only_spark_runs_on_the_one_from_pypi_and_quietly(path_without_java, tmp_path):
    environment = {**os.environ, "PATH": str(path_without_java), "HOME": str(tmp_path)}
    environment.pop("JAVA_HOME", None)
    ended = subprocess.run([sys.executable, "-c", COUNT], capture_output=True, text=True, env=environment)
    assert ended.returncode == 0, ended.stderr
    said, count, java = ended.stdout.splitlines()
    assert "not" in said and f"{path_without_java.parent}/bin/java (Java 11, too old)" in said
    assert count == "10" and int(java) >= 17
    assert ended.stderr == "an error of Java's own\n"


def test_known_noise_is_left_out_and_all_else_is_passed_on(capfd):
    stderr = StderrFilter()
    with os.fdopen(os.dup(stderr.write_end), "w") as out:
        out.write("WARNING: Using incubator modules: jdk.incubator.vector\n")
        out.write("WARNING: package sun.security.action not in java.base\n")
        out.write("WARNING: something that matters\n")
        out.write('Setting default log level to "WARN".\n')
        out.write("To adjust logging level use sc.setLogLevel(newLevel). For SparkR, use setLogLevel.\n")
        out.write("12:00:00 ERROR Executor: a failure\nand a line without an end")
    stderr.close(timeout_s=30)
    assert capfd.readouterr().err == (
        "WARNING: something that matters\n12:00:00 ERROR Executor: a failure\nand a line without an end"
    )


def test_a_process_can_write_after_our_stderr_is_closed(monkeypatch):
    monkeypatch.setattr("runnel.pipelines.gateway._STDERR", -1)
    stderr = StderrFilter()
    with os.fdopen(os.dup(stderr.write_end), "wb") as out:
        out.write(b"x" * 99 + b"\n" + b"y" * 200_000)
    stderr.close(timeout_s=30)
    assert stderr.last_lines[0] == b"x" * 99 + b"\n"


def failing_start(**environment: str) -> str:
    program = "from runnel.pipelines.session import start_session\nstart_session('probe', master='local[1]')"
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env={**os.environ, **environment}
    )
    assert ended.returncode == 1
    return ended.stderr.strip().splitlines()[-1]


def test_a_java_that_fails_says_why(tmp_path):
    home = tmp_path / "jvm"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text(
        "#!/bin/sh\n"
        '[ "$1" = -version ] && exec echo \'version "17"\'\n'
        "echo 'Error: could not reserve enough space' >&2\nexit 1\n"
    )
    (home / "bin" / "java").chmod(0o755)
    assert failing_start(JAVA_HOME=str(home)) == (
        "runnel.pipelines.errors.NoSpark: Spark's Java process did not start: "
        "Error: could not reserve enough space"
    )


def fake_python(tmp_path: Path, script: str) -> str:
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return str(program)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo 3.9", "is Python 3.9, but this process runs"),
        ("echo \"ModuleNotFoundError: No module named 'runnel'\" >&2; exit 1", "No module named 'runnel'"),
        ("exit 7", "exit status 7"),
    ],
)
def test_workers_need_the_same_python_with_runnel_in_it(tmp_path, monkeypatch, script, reason):
    monkeypatch.setenv("PYSPARK_PYTHON", fake_python(tmp_path, script))
    with pytest.raises(NoSpark, match=reason) as raised:
        start_session("probe", master="local[1]")
    assert "must be a Python" in str(raised.value)


def test_a_python_that_is_not_there(tmp_path):
    settings = {"spark.pyspark.python": str(tmp_path / "gone")}
    with pytest.raises(NoSpark, match=r"gone cannot be started .*No such file"):
        start_session("probe", master="local[1]", settings=settings)


def test_the_links_of_the_machine_hold(path_without_java):
    assert shutil.which("bash", path=str(path_without_java))
    assert shutil.which("java", path=str(path_without_java)) == str(path_without_java / "java")
