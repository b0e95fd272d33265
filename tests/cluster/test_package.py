"""What travels with a run: the config without secrets, code with its modules, and nothing that means something here only."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from rlctl.cli import job_entrypoint
from rlctl.cluster import package
from rlctl.cluster.package import Package, pack
from rlctl.common.errors import RunError
from rlctl.config import Config, Loaded, combine, config_from, load
from rlctl.config.inspect import walk
from rlctl.documents import read_yaml

BASE: dict[str, Any] = {
    "run": {"name": "demo", "folder": "/shared/runs"},
    "model": {"path": "Qwen/Qwen2.5-1.5B"},
    "data": {"train": [{"path": "/shared/train.parquet"}]},
}


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a reward, what it imports, and what it does not."""
    (tmp_path / "tools" / "deep").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    for name in ("helper.py", "tools/__init__.py", "tools/deep/more.py", "secret_plans.py", "other/__init__.py"):
        (tmp_path / name).write_text(f"# {name}\n")
    (tmp_path / "reward.py").write_text(
        "def score():\n    import helper\n\n    importlib.import_module('tools.deep.more')\n"
    )
    (tmp_path / "train.parquet").write_bytes(b"\0" * 100)
    (tmp_path / "chat.jinja").write_text("{{ messages }}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def packed(**sections: Any) -> Package:
    return pack(Loaded(config_from({**BASE, **sections})))


def read(made: Package) -> Config:
    loaded, report = load(read_yaml(made.config, "run.yaml"))
    assert loaded is not None, report.errors
    return loaded.config


def test_code_goes_with_its_modules_and_is_found_where_it_arrives(code: Path, tmp_path_factory: Any) -> None:
    rewards = [{"type": "function", "path": "reward.py"}]
    made = packed(rewards=rewards, model={"path": "a/b", "chat_template": "chat.jinja"})
    assert set(made.files) == {
        *("0/chat.jinja", "0/reward.py", "0/helper.py", "0/tools/__init__.py", "0/tools/deep/more.py")
    }
    config = read(made)
    assert config.rewards[0].path == f"{made.home}/0/reward.py"  # type: ignore[union-attr]
    assert config.model.chat_template == f"{made.home}/0/chat.jinja"
    assert made.home.startswith("/shared/runs/.files/")
    there = tmp_path_factory.mktemp("there")
    for name, content in made.files.items():
        (there / "files" / name).parent.mkdir(parents=True, exist_ok=True)
        (there / "files" / name).write_bytes(content)
    job_entrypoint.place(there / "files", there / "home")
    job_entrypoint.place(there / "files", there / "home")
    assert (there / "home" / "0" / "tools" / "deep" / "more.py").read_text() == "# tools/deep/more.py\n"


def test_files_that_nothing_imports_stay_here(code: Path) -> None:
    made = packed(rewards=[{"type": "function", "path": "reward.py"}])
    assert {Path(source).relative_to(code).as_posix() for source in made.sources.values()} == {
        "reward.py", "helper.py", "tools/__init__.py", "tools/deep/more.py"
    }  # fmt: skip
    assert set(made.sources) == set(made.files)


@pytest.mark.parametrize("link", ["reward.py", "helper.py", "tools", "tools/deep", "tools/deep/more.py"])
def test_a_link_out_of_the_folder_is_refused(code: Path, tmp_path_factory: Any, link: str) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (code / link).rename(elsewhere / "moved")
    (code / link).symlink_to(elsewhere / "moved")
    with pytest.raises(RunError, match=rf"{link}\S* is a link to .*moved\S*, which is outside of"):
        packed(rewards=[{"type": "function", "path": "reward.py"}])


def test_a_link_within_the_folder_is_followed(code: Path) -> None:
    (code / "helper.py").rename(code / "real.py")
    (code / "helper.py").symlink_to("real.py")
    made = packed(rewards=[{"type": "function", "path": "reward.py"}])
    assert made.files["0/helper.py"] == b"# helper.py\n"


def test_a_folder_of_code_that_is_too_odd_to_read_is_packed(code: Path) -> None:
    os.mkfifo(code / "pipe.py")
    (code / "helper.py").write_text("(" * 10_000 + "import pipe")
    made = packed(rewards=[{"type": "function", "path": "reward.py"}], runtime={"plugins": [str(code)]})
    assert "0/pipe.py" not in made.files


def test_the_home_of_the_files_is_that_of_their_content(code: Path) -> None:
    rewards = [{"type": "function", "path": "file://reward.py"}]
    first = packed(rewards=rewards)
    assert packed(rewards=rewards, run={"name": "other", "folder": "/shared/runs"}).home == first.home
    (code / "helper.py").write_text("changed")
    assert packed(rewards=rewards).home != first.home


def test_files_of_a_stage_go_too(code: Path) -> None:
    plain = {**BASE, "rewards": [{"type": "function", "path": "reward.py"}]}
    other = {**plain, "rewards": [{"type": "function", "path": "helper.py"}]}
    made = pack(Loaded(combine([("one", config_from(plain)), ("two", config_from(other))])))
    assert made.config.count(f"{made.home}/0/") == 2
    assert read(made).stages


def test_what_is_no_file_here_stays_as_it_is() -> None:
    made = packed(
        model={"path": "a/b", "chat_template": "{% for m in messages %}{{ m }}{% endfor %}"},
        rewards=[
            {"type": "function", "path": "pkg://rewards.maths"},
            {"type": "function", "name": "b", "path": "/there/r.py"},
        ],
    )
    assert made.files == {}
    assert [reward.path for reward in read(made).rewards] == ["pkg://rewards.maths", "/there/r.py"]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("sections", "told"),
    [
        ({"run": {"folder": "runs"}}, "run.folder is 'runs'"),
        ({"data": {"train": [{"path": "train.parquet"}]}}, "data.train[0].path is 'train.parquet'"),
        ({"model": {"path": "./model"}}, "model.path is './model'"),
        (
            {"rewards": [{"type": "function", "path": "lost.py"}]},
            "rewards[0].path is 'lost.py', but there is no such local file",
        ),
        ({"tracking": [{"type": "wandb", "api_key": "1234"}]}, "tracking[0].api_key contains a secret"),
    ],
)
def test_what_means_nothing_there_is_refused(code: Path, sections: dict[str, Any], told: str) -> None:
    with pytest.raises(RunError) as caught:
        packed(**sections)
    assert told in str(caught.value)


def test_code_that_is_data_is_refused(code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package, "SIZE_LIMIT", 20)
    with pytest.raises(RunError, match="the code next to"):
        packed(rewards=[{"type": "function", "path": "reward.py"}])


def test_secrets_stay_names_of_variables_that_are_told(code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sesame")
    text = (
        "rlctl: 1\nrun: {folder: /shared/runs, name: '${oc.env:RUN_NAME,demo}'}\nmodel: {path: a/b}\n"
        "runtime: {ray: {address: 'http://head:8265'}}\n"
        "tracking: [{type: wandb, api_key: '${oc.env:MY_KEY}'}]\n"
    )
    loaded, _ = load(read_yaml(text, "run.yaml"))
    assert loaded is not None
    made = pack(loaded)
    assert "sesame" not in made.config
    assert made.variables == ("MY_KEY",)
    assert "${oc.env:RUN_NAME,demo}" in made.config
    assert read(made).runtime.ray.address is None


def test_every_key_that_names_a_path_is_shipped_expected_or_none() -> None:
    """A new key with a path needs a decision: does it travel, or must it be there?"""
    texts = ("opening_template", "template", "history_template", "invalid_action_text")
    no_paths = {"model.chat_template_args", *(f"rollout.agents[]<environment>.{name}" for name in texts)}
    ends = (
        "path",
        "folder",
        "chat_template",
        "template",
        "tokenizer",
        "tool_config",
        "interaction_config",
        "plugins",
        "filename",
    )
    for key in walk(Config):
        if not key.info.name.endswith(ends) or key.pattern in no_paths or key.is_section:
            continue
        pattern = key.pattern
        if pattern.startswith(("critic.model.", "reference.model.")) and pattern.endswith("chat_template"):
            continue  # they read the policy's tokens
        assert pattern in package.SHIPPED or package._is_place(pattern), pattern
    known = {key.pattern for key in walk(Config)}
    assert {*package.SHIPPED, *package.PLACES} <= known
