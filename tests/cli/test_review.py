"""``rlctl review`` on real git repositories: what a change means, said once, whatever its files are called and contain."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlctl.cli.review import markdown
from rlctl.cli.review.comparing import Asked, Review, review
from rlctl.cli.review.git import Repository
from rlctl.cli.review.isolation import isolated
from rlctl.cli.review.posting import MARKER, MOST, NOTHING, harmless
from rlctl.common.errors import UsageError
from rlctl.planning.machines import named_cluster

from .conftest import Run

VERL = """
data: {train_files: data/train.parquet, train_batch_size: 64, max_prompt_length: 512, max_response_length: 1024}
actor_rollout_ref:
  model: {path: Qwen/Qwen2.5-7B-Instruct}
  actor:
    optim: {lr: 1e-6}
    ppo_mini_batch_size: 32
    use_dynamic_bsz: true
  rollout: {name: vllm, n: 8}
algorithm: {adv_estimator: grpo}
trainer: {n_gpus_per_node: 8, nnodes: 1, total_epochs: 1, save_freq: 10}
"""
SCRIPT = """source "$(dirname "$0")/common.sh"
python3 -m verl.trainer.main_ppo data.train_files=a.parquet data.train_batch_size=64 actor_rollout_ref.rollout.n=8 \\
    actor_rollout_ref.model.path=Qwen/Qwen2.5-7B-Instruct actor_rollout_ref.actor.optim.lr=$LR algorithm.adv_estimator=grpo \\
    actor_rollout_ref.actor.ppo_mini_batch_size=32 actor_rollout_ref.actor.use_dynamic_bsz=True trainer.n_gpus_per_node=8
"""
SETTINGS = {
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@b",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@b",
    "GIT_CONFIG_GLOBAL": "/dev/null",
}


class Project:
    """A git repository with a branch ``main`` and a branch ``change``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.git("init", "--quiet", "-b", "main")

    def git(self, *words: str) -> str:
        around = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")} | SETTINGS
        command = ["git", *words]
        return subprocess.run(
            command, cwd=self.folder, env=around, capture_output=True, text=True, check=True
        ).stdout.strip()

    def commit(self, files: dict[str, str | None]) -> None:
        """Write or delete files, and commit."""
        for name, content in files.items():
            path = self.folder / name
            if content is None:
                path.unlink()
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(content)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "-m", "x")

    def review(self, cluster: str = "", base: str = "main", **asked: Any) -> Review:
        machines = named_cluster(cluster) if cluster else None
        return review(Repository(self.folder), base, "HEAD", Asked(cluster=machines, **asked), cluster)


Make = Callable[[dict[str, str | None], dict[str, str | None]], Project]


@pytest.fixture
def project(tmp_path: Path) -> Make:
    """Makes a repository whose branch ``change`` is checked out."""

    def make(before: dict[str, str | None], after: dict[str, str | None]) -> Project:
        made = Project(tmp_path / "repository")
        made.commit(before)
        made.git("switch", "--quiet", "-c", "change")
        made.commit(after)
        return made

    return make


def _comment(found: Review) -> str:
    return markdown.comment(found, markdown.Links())


def test_five_changes_are_in_the_first_table(project: Make) -> None:
    names = ("lr", "batch", "typo", "long", "old")
    before: dict[str, str | None] = {f"configs/{name}.yaml": VERL for name in names}
    after: dict[str, str | None] = {
        "configs/lr.yaml": VERL.replace("lr: 1e-6", "lr: 1e-5"),
        "configs/batch.yaml": VERL.replace("train_batch_size: 64", "train_batch_size: 60"),
        "configs/typo.yaml": VERL.replace("max_prompt_length", "max_promt_length"),
        "configs/long.yaml": VERL.replace("1024", "131072"),
        "configs/old.yaml": None,
        "configs/new.yaml": VERL.replace("n: 8}", "n: 16}"),
    }
    found = project(before, after).review("1x8:H100")
    told = _comment(found)
    rows = {match[1]: match[0] for match in re.finditer(r"^\| .*?`configs/(\w+)\.yaml`.*$", told, re.MULTILINE)}
    assert "`lr` `1e-06` → **`1e-05`**" in rows["lr"]
    assert rows["lr"].startswith("| 🟢 ")
    assert "`train_batch_size` `64` → **`60`**" in rows["batch"]
    assert "`mini-batch-uneven`" in rows["batch"]
    assert "`mistyped-key`" in rows["typo"]
    assert "one error" in rows["typo"]
    assert "**does not fit**" in rows["long"]
    assert rows["long"].startswith("| 🔴 ")
    assert " → 4h" in rows["long"]
    assert "(was `configs/old.yaml`)" in rows["new"]
    assert "`n` `8` → **`16`**" in rows["new"]
    assert told.index("typo.yaml") < told.index("batch.yaml") < told.index("lr.yaml")


def test_findings_on_other_lines_than_the_changed_ones_are_marked(project: Make) -> None:
    changed = VERL.replace("train_batch_size: 64", "train_batch_size: 60")
    made = project({"a.yaml": VERL}, {"a.yaml": changed})
    [config] = made.review().configs
    assert [item.code for item in config.new] == ["mini-batch-uneven"]
    assert not config.on_changed
    assert "(unchanged line)" in _comment(made.review())
    made.commit({"a.yaml": changed.replace("ppo_mini_batch_size: 32", "ppo_mini_batch_size: 31")})
    assert [item.code for item in made.review().configs[0].on_changed] == ["mini-batch-uneven"]


def test_only_new_findings_are_shown_and_fixed_ones_are_named(project: Make) -> None:
    typo = VERL.replace("max_prompt_length", "max_promt_length")
    made = project({"a.yaml": typo, "b.yaml": typo}, {"a.yaml": typo.replace("1e-6", "2e-6"), "b.yaml": VERL})
    kept, fixed = sorted(made.review().configs, key=lambda item: item.file)
    assert (kept.new, kept.old) == ((), 1)
    assert [item.code for item in fixed.fixed] == ["mistyped-key"]
    assert "1 as before" in _comment(made.review())


def test_what_a_config_is_built_from_counts_as_its_change(project: Make) -> None:
    before: dict[str, str | None] = {
        "s/run.sh": SCRIPT,
        "s/common.sh": "export LR=1e-6\n",
        "h/child.yaml": "defaults: [base, _self_]\ntrainer: {nnodes: 2}\n",
        "h/base.yaml": VERL,
        "h/other.yaml": VERL,
    }
    made = project(before, {"s/common.sh": "export LR=1e-5\n", "h/base.yaml": VERL.replace("n: 8}", "n: 4}")})
    found = {item.file: item for item in made.review().configs}
    assert set(found) == {"s/run.sh", "h/child.yaml", "h/base.yaml"}
    assert found["s/run.sh"].status == "built"
    assert found["s/run.sh"].because == ("s/common.sh",)
    [difference] = found["s/run.sh"].differences
    assert (difference.first.value, difference.second.value) == (1e-6, 1e-5)
    assert "(unchanged; it uses `s/common.sh`)" in _comment(made.review())


def test_a_reward_file_that_lost_its_function_is_a_finding_of_the_configs_that_name_it(project: Make) -> None:
    config = VERL + "reward: {custom_reward_function: {path: reward.py, name: compute_score}}\n"
    function = "def compute_score(data_source, solution_str, ground_truth, extra_info):\n    return 1.0\n"
    made = project({"a.yaml": config, "reward.py": function}, {"reward.py": function.replace("compute_score", "score")})
    [item] = made.review().configs
    assert [each.code for each in item.new] == ["code-name"]


def test_added_and_deleted_configs(project: Make) -> None:
    made = project({"gone.yaml": VERL}, {"gone.yaml": None, "new.yaml": "rlctl: 1\nmodel: {path: Qwen/Qwen2.5-0.5B}\n"})
    told = _comment(made.review())
    assert re.search(r"`gone.yaml` \| deleted", told)
    assert re.search(r"`new.yaml` \| new config", told)


def test_a_config_that_cannot_be_read_before_or_after(project: Make) -> None:
    broken = VERL.replace("{adv_estimator: grpo}", "{adv_estimator: grpo")
    made = project({"a.yaml": VERL, "b.yaml": broken}, {"a.yaml": broken, "b.yaml": VERL})
    found = {item.file: item for item in made.review().configs}
    assert [item.code for item in found["a.yaml"].new] == ["unreadable"]
    assert found["b.yaml"].unread_before
    assert not found["b.yaml"].new
    assert "The version before could not be read" in _comment(made.review())


def test_what_happened_on_the_base_since_does_not_count(project: Make) -> None:
    made = project({"a.yaml": VERL, "b.yaml": VERL}, {"a.yaml": VERL.replace("1e-6", "2e-6")})
    made.git("switch", "--quiet", "main")
    made.commit({"b.yaml": VERL.replace("1e-6", "3e-6")})
    made.git("switch", "--quiet", "change")
    assert [item.file for item in made.review().configs] == ["a.yaml"]


def test_no_changed_config_is_nothing_to_tell(project: Make) -> None:
    made = project(
        {"a.yaml": VERL, "compose.yaml": "services: {}\n"}, {"compose.yaml": "services: {a: {}}\n", "x.md": "x"}
    )
    assert _comment(made.review()).startswith(NOTHING)
    moved = _comment(made.review(paths=["a.yaml"]))
    assert moved.startswith(NOTHING)


def test_only_the_paths_that_are_asked_for(project: Make) -> None:
    changed = VERL.replace("1e-6", "2e-6")
    made = project({"a/x.yaml": VERL, "ab/x.yaml": VERL}, {"a/x.yaml": changed, "ab/x.yaml": changed})
    assert [item.file for item in made.review(paths=["a"]).configs] == ["a/x.yaml"]


def test_a_shallow_clone_is_told_what_to_fetch(project: Make, tmp_path: Path) -> None:
    made = project({"a.yaml": VERL}, {"a.yaml": VERL.replace("1e-6", "2e-6")})
    base = made.git("rev-parse", "main")
    clone = tmp_path / "clone"
    subprocess.run(
        ["git", "clone", "-q", "--depth=1", f"file://{made.folder}", clone], check=True, env=os.environ | SETTINGS
    )
    with pytest.raises(UsageError, match="no commit") as error:
        review(Repository(clone), base, "HEAD", Asked())
    assert "fetch-depth: 0" in error.value.hint
    subprocess.run(
        ["git", "fetch", "-q", "--depth=1", "origin", base], cwd=clone, check=True, env=os.environ | SETTINGS
    )
    with pytest.raises(UsageError, match="have no commit in common") as error:
        review(Repository(clone), base, "HEAD", Asked())
    assert "fetch-depth: 0" in error.value.hint


@pytest.mark.parametrize("revision", ["--output=x", "nowhere", "HEAD:a.yaml"])
def test_a_revision_that_is_none(project: Make, revision: str) -> None:
    made = project({"a.yaml": VERL}, {})
    with pytest.raises(UsageError, match="no commit"):
        made.review(base=revision)
    assert not (made.folder / "x").exists()


def test_a_folder_outside_a_repository(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a git repository"):
        review(Repository(tmp_path), "main", "HEAD", Asked())


# Names and contents are data


HOSTILE = "a|b`c` @everyone <img src=x> [l](http:x) ![i](x)\n## # *x* 回.yaml"


def test_names_and_values_cannot_become_markdown(project: Make) -> None:
    changed = VERL.replace("Qwen/Qwen2.5-7B-Instruct", '"x|`@team` <script>alert(1)</script> [a](https://b.c) #1"')
    made = project({}, {HOSTILE: changed + 'reward: {custom_reward_function: {path: "@all|<b>", name: "`x`"}}\n'})
    told = _comment(made.review())
    assert told.startswith(MARKER)
    outside = re.sub(r"<code>[^<]*</code>|`[^`\n]*`|<!--.*?-->|</?(?:details|summary|sub|br)>", "", told)
    assert not re.search(r"[@<`\[]|!\[|https?:", outside)
    tables = re.findall(r"^\|.*$", told, re.MULTILINE)
    assert len({row.count("|") for row in tables[:3]}) == 1
    assert harmless(told) == told


def test_a_name_that_is_not_utf_8(project: Make) -> None:
    made = project({}, {})
    (made.folder / os.fsdecode(b"a\xff.yaml")).write_text(VERL)
    made.git("add", "--all")
    made.git("commit", "--quiet", "-m", "x")
    _comment(made.review()).encode()


def test_links_and_large_files_are_not_read(project: Make, tmp_path: Path) -> None:
    (tmp_path / "secret.yaml").write_text(VERL)
    made = project({"a.yaml": VERL}, {"big.yaml": VERL + "# x" * 400_000})
    (made.folder / "link.yaml").symlink_to(tmp_path / "secret.yaml")
    made.commit({})
    found = made.review()
    assert not found.configs
    assert dict(found.skipped) == {"link.yaml": "it is a link or a submodule", "big.yaml": "it is larger than 1 MiB"}
    assert not _comment(found).startswith(NOTHING)


def test_a_script_reads_no_variable_and_no_file_of_the_machine(
    project: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LR", "0.125")
    (tmp_path / "outside.sh").write_text("LR=0.25\n")
    made = project(
        {},
        {
            "a.sh": SCRIPT.replace('source "$(dirname "$0")/common.sh"', f"source {tmp_path}/outside.sh"),
            "b.sh": SCRIPT.replace('source "$(dirname "$0")/common.sh"', "echo"),
            "c.sh": SCRIPT.replace('source "$(dirname "$0")/common.sh"', "touch /tmp/rlctl-was-here; $(touch made)"),
        },
    )
    told = json.dumps(made.review().as_data())
    assert "0.25" not in told
    assert "0.125" not in told
    assert os.environ["LR"] == "0.125"
    assert not list(made.folder.glob("made"))


def test_nothing_outside_a_folder_is_opened(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "x").write_text("x")
    (tmp_path / "y").write_text("y")
    with isolated(tmp_path / "in"):
        assert Path("x").read_text() == "x"
        with pytest.raises(PermissionError):
            Path("../y").read_text()
        with pytest.raises(PermissionError):
            Path("/proc/self/environ").read_bytes()
    assert (tmp_path / "y").read_text() == "y"


def test_a_comment_is_bounded_and_starts_with_the_gravest(project: Make) -> None:
    made = project({f"c{number}.yaml": VERL for number in range(5)}, {})
    made.commit({f"c{number}.yaml": VERL.replace("1e-6", f"{number + 2}e-6") for number in range(4)})
    made.commit({"c4.yaml": VERL.replace("max_prompt_length", "max_promt_length")})
    found = made.review()
    whole = _comment(found)
    assert len(whole) <= MOST
    short = markdown.comment(found, markdown.Links("https://example.org/x"), most=2600)
    assert len(short) <= 2600
    assert short.index("c4.yaml") < short.index("c0.yaml")
    assert "are not shown" in short


# The command


def test_the_command_prints_writes_and_fails(project: Make, rlctl: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    made = project({"a.yaml": VERL}, {"a.yaml": VERL.replace("max_prompt_length", "max_promt_length")})
    monkeypatch.chdir(made.folder)
    done = rlctl("review", "main", "--link", "https://example.org/blob/x", "-o", "r.md", "--code-quality", "q.json")
    assert (done.code, done.out) == (0, ""), done.err
    assert "[line 2](https://example.org/blob/x/a.yaml#L2)" in Path("r.md").read_text()
    [entry] = [each for each in json.loads(Path("q.json").read_text()) if each["check_name"] == "mistyped-key"]
    assert (entry["severity"], entry["location"]) == ("critical", {"path": "a.yaml", "lines": {"begin": 2}})
    failed = rlctl("review", "main", "--json", "--fail-on-error")
    assert failed.code == 1
    [config] = json.loads(failed.out)["configs"]
    assert config["findings"][0]["on_changed_line"] is True
    chinese = rlctl("--language", "zh", "review", "main")
    assert "1 个配置有改动：1 个会运行失败" in chinese.out
    assert rlctl("review").code == 2
