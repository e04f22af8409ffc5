"""docs/ci.md: its workflows are YAML, and their shell steps do what the page says, on the recorded runs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml", reason="the dev extra of this environment is older than pyyaml in it")

ROOT = Path(__file__).parents[2]
RUNS = ROOT / "traces" / "dcp-combine"
SHA = "c0ffee"
MARKER = "<!-- profkit -->"


def workflows() -> dict[str, Any]:
    """The page's workflows, by file name."""
    page = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```yaml\n# \.github/workflows/(\S+)\n(.*?)```", page, re.DOTALL)
    return {name: yaml.safe_load(text) for name, text in blocks}


def step(workflow: str, job: str, name: str) -> str:
    """The shell text of a step."""
    (found,) = [s["run"] for s in workflows()[workflow]["jobs"][job]["steps"] if s.get("name") == name]
    return str(found)


def run(text: str, directory: Path, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a step as GitHub does for ``shell: bash``."""
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", text]
    path = f"{directory / 'bin'}:{os.environ['PATH']}"
    files = {name: str(directory / name) for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY", "GITHUB_PATH")}
    whole = {**os.environ, "PATH": path, **files, **env}
    return subprocess.run(command, cwd=directory, env=whole, capture_output=True, text=True, check=False, timeout=60)


def program(directory: Path, name: str, text: str) -> None:
    """Put a program in front of PATH."""
    file = directory / "bin" / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(text, encoding="utf-8")
    file.chmod(0o755)


def test_the_workflows_ask_for_no_more_than_they_need() -> None:
    record, comment = (workflows()[name] for name in ("profkit.yml", "profkit-comment.yml"))
    # YAML 1.1 reads the key `on` as true.
    assert record[True] == "pull_request"
    assert record["permissions"] == {"contents": "read"}
    assert comment[True] == {"workflow_run": {"workflows": [record["name"]], "types": ["completed"]}}
    assert comment["permissions"] == {"actions": "read", "pull-requests": "write"}
    # THEN no text of a pull request is put into a shell step: values come by the environment
    for workflow in (record, comment):
        for job in workflow["jobs"].values():
            assert all("${{" not in s.get("run", "") for s in job["steps"])


@pytest.mark.parametrize(
    ("after", "gates", "status", "said"),
    [
        pytest.param("fused", "--expect-removed 8 --max-regression 2", "0", "CONFIRMED", id="confirmed"),
        pytest.param("dropped", "--expect-removed 8", "1", "REFUTED", id="refuted"),
        pytest.param("fused", "--expect-removed eight", "2", "could not compare the runs", id="bad option"),
        pytest.param("nowhere", "", "2", "no such file or directory", id="no run"),
        pytest.param("torch", "", "3", "INCONCLUSIVE", id="cannot be told"),
    ],
)
def test_the_diff_reports_and_the_verdict_ends_the_job(
    tmp_path: Path, after: str, gates: str, status: str, said: str
) -> None:
    program(tmp_path, "profkit", f'#!/bin/sh\nexec "{sys.executable}" -m profkit.cli "$@"\n')
    (tmp_path / "before").symlink_to(RUNS / "eager")
    if after != "nowhere":
        (tmp_path / "after").symlink_to(ROOT / "traces/dcp-combine-torch/fused" if after == "torch" else RUNS / after)
    done = run(step("profkit.yml", "diff", "Diff"), tmp_path, {"GATES": gates, "NUMBER": "7"})
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "GITHUB_OUTPUT").read_text() == f"status={status}\n"
    report = (tmp_path / "report" / "report.md").read_text(encoding="utf-8")
    assert said in report.replace("\\", "")
    assert (tmp_path / "GITHUB_STEP_SUMMARY").read_text(encoding="utf-8") == report
    verdict = run(step("profkit.yml", "diff", "Verdict"), tmp_path, {"STATUS": status})
    assert verdict.returncode == int(status)
    assert ("::error::" in verdict.stdout) == (status != "0")


@pytest.mark.slow
def test_the_record_step_records_both_sides(tmp_path: Path) -> None:
    # GIVEN a workload in a file of each checkout, and a capture that needs no GPU and is short
    pytest.importorskip("torch", reason="captures import torch")
    more = "--profiler dispatch --pairs 1"
    program(tmp_path, "profkit", f'#!/bin/sh\nexec "{sys.executable}" -m profkit.cli "$@" {more}\n')
    for side in ("base", "head"):
        (tmp_path / side).mkdir()
        shutil.copy(ROOT / "tests" / "capture" / "toy_workload.py", tmp_path / side)
    env = {**workflows()["profkit.yml"]["env"], "WORKLOAD": "toy_workload.py:TOY", "VARIANT": "fused"}
    done = run(step("profkit.yml", "diff", "Record"), tmp_path, env)
    assert done.returncode == 0, done.stderr
    assert all((tmp_path / side / "fused" / "0" / "0" / "run.json").is_file() for side in ("before", "after"))


def test_every_name_that_a_step_reads_is_set() -> None:
    workflow = workflows()["profkit.yml"]
    for name in ("Install", "Record"):
        read = set(re.findall(r"\$([A-Z_]+)", step("profkit.yml", "diff", name)))
        assert read <= {*workflow["env"], "PWD", "GITHUB_PATH"}
    assert '--variant "$VARIANT"' in step("profkit.yml", "diff", "Record")


#: Keeps a repository's comments in a file, and filters them as `gh` does.
_GH = f"""#!{sys.executable}
import json, subprocess, sys
from pathlib import Path
arguments = sys.argv[2:]
state = Path("comments.json")
comments = json.loads(state.read_text())
value = lambda option: arguments[arguments.index(option) + 1]
if "--method" in arguments:
    body = Path(value("-F").removeprefix("body=@")).read_text(encoding="utf-8")
    path = arguments[2]
    if value("--method") == "PATCH":
        (own,) = [c for c in comments if path == f"repos/o/r/issues/comments/{{c['id']}}"]
        own["body"] = body
    else:
        assert path == "repos/o/r/issues/7/comments"
        comments.append({{"id": 100 + len(comments), "user": {{"login": "github-actions[bot]"}}, "body": body}})
    state.write_text(json.dumps(comments))
else:
    path = next(a for a in arguments if a.startswith("repos/"))
    answer = comments if path.endswith("/7/comments") else {{"head": {{"sha": "{SHA}"}}}}
    jq = ["jq", "-r", value("--jq")]
    sys.stdout.write(subprocess.run(jq, input=json.dumps(answer), capture_output=True, text=True, check=True).stdout)
"""


def comment(directory: Path, report: str, *, number: str = "7", sha: str = SHA) -> tuple[int, list[dict[str, Any]]]:
    """Run the comment step; its exit status, and the comments that are then there."""
    (directory / "report").mkdir(exist_ok=True)
    (directory / "report" / "number").write_text(number + "\n")
    (directory / "report" / "report.md").write_text(report, encoding="utf-8")
    env = {"REPOSITORY": "o/r", "HEAD_SHA": sha, "MARKER": MARKER}
    done = run(step("profkit-comment.yml", "comment", "Comment"), directory, env)
    return done.returncode, json.loads((directory / "comments.json").read_text())


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A directory in which `gh` knows of two comments by others, one of them with the marker."""
    if shutil.which("jq") is None:
        pytest.skip("needs jq, which stands in for the one inside gh")
    program(tmp_path, "gh", _GH)
    others = [{"id": n, "user": {"login": "someone"}, "body": body} for n, body in ((1, "hi"), (2, f"{MARKER} hi"))]
    (tmp_path / "comments.json").write_text(json.dumps(others))
    return tmp_path


def test_the_comment_is_made_once_and_updated_then(repository: Path) -> None:
    status, comments = comment(repository, "first")
    assert (status, [c["body"] for c in comments[2:]]) == (0, [f"{MARKER}\nfirst"])
    status, comments = comment(repository, "second")
    assert (status, [c["body"] for c in comments[2:]]) == (0, [f"{MARKER}\nsecond"])
    assert [c["body"] for c in comments[:2]] == ["hi", f"{MARKER} hi"]


def test_a_long_report_is_cut_to_what_a_comment_holds(repository: Path) -> None:
    _, comments = comment(repository, "x" * 100_000)
    assert 50_000 < len(comments[2]["body"]) < 65_536


@pytest.mark.parametrize(("number", "sha", "status"), [("7; gh", SHA, 1), ("", SHA, 1), ("7", "another", 0)])
def test_a_report_that_is_not_of_the_pull_request_is_not_posted(
    repository: Path, number: str, sha: str, status: int
) -> None:
    assert comment(repository, "text", number=number, sha=sha)[0] == status
    assert len(json.loads((repository / "comments.json").read_text())) == 2


def test_the_readme_leads_here() -> None:
    assert "docs/ci.md" in (ROOT / "README.md").read_text(encoding="utf-8")
