"""Pages of HTML: ``--html`` of commands, and what a notebook shows of the Python API."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import rlctl
from rlctl import cli
from rlctl.cli import html
from rlctl.common.errors import UsageError
from tests.cli.test_runs import make_run

SOURCE = """\
algorithm: {adv_estimator: grpo}
data: {train_files: '<script>alert(1)</script>.jsonl', train_batch_size: 60, train_batchsize: 1}
actor_rollout_ref:
  model: {path: Qwen/Qwen2.5-0.5B-Instruct}
  actor: {ppo_mini_batch_size: 25, ppo_micro_batch_size_per_gpu: 5}
  rollout: {name: vllm, n: 5, tensor_model_parallel_size: 1, log_prob_micro_batch_size_per_gpu: 5}
trainer: {nnodes: 1, n_gpus_per_node: 1, total_training_steps: 10}
"""


class Reader(HTMLParser):
    """Reads a page, and refuses what a page must not have."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        assert tag not in ("script", "link", "img", "iframe", "object")
        assert not {name for name, _ in attrs} & {"src", "href", "onclick", "onload"}
        if tag not in ("meta", "br", "!doctype"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += f" {data}"


def read(content: str) -> Reader:
    reader = Reader()
    reader.feed(content)
    assert not reader.open
    return reader


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "verl.yaml").write_text(SOURCE)
    make_run(tmp_path / "runs", "sums", "failed", cause="the disk is <b>full</b>")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (
            ["check", "verl.yaml", "--runner", "verl"],
            ["mini-batch-uneven", "data.train_batch_size", "<script>alert(1)"],
        ),
        (
            ["convert", "verl.yaml", "--to", "trinity"],
            ["train_batchsize", "buffer.train_batch_size", "repeat_times: 5"],
        ),
        (["plan", "verl.yaml", "--cluster", "1x1:H100"], ["60 prompts", "rollout KV cache", "optimizer"]),
        (["runs", "show", "sums"], ["the disk is <b>full</b>", "0.250 -> 0.500"]),
    ],
    ids=lambda value: value[0],
)
def test_a_result_is_one_page(folder: Path, words: list[str], shown: list[str]) -> None:
    page = folder / "page.html"
    CliRunner().invoke(cli.app, [*words, "--html", str(page)])
    content = page.read_text(encoding="utf-8")
    reader = read(content)
    assert "width=device-width" in content
    assert "color-scheme:light dark" in content
    assert "default-src 'none'" in content
    assert len(content) < 60_000
    for part in shown:
        assert part in reader.text
    refused = CliRunner().invoke(cli.app, [*words, "--html", str(page)])
    assert "exists already" in str(refused.exception)
    assert CliRunner().invoke(cli.app, [*words, "--html", str(page), "--force"]).exit_code in (0, 1, 3)


def test_results_of_the_python_api_show_themselves(folder: Path) -> None:
    fixed = SOURCE.replace("ppo_mini_batch_size: 25", "ppo_mini_batch_size: 20")
    shown: list[tuple[Any, str]] = [
        (rlctl.check(SOURCE, runner="verl"), "mini-batch-uneven"),
        (rlctl.check("verl.yaml"), "has no key 'data.train_batchsize'"),
        (rlctl.convert(SOURCE, to="roll"), "pretrain"),
        (rlctl.plan(SOURCE, cluster="1x1:H100"), "60 prompts"),
        (rlctl.diff(SOURCE, fixed), "batch.mini_batch_responses"),
    ]
    for result, word in shown:
        reader = read(result._repr_html_())
        assert word in reader.text
        assert "html" not in reader.tags, "a part of the notebook's own page"
    [changed] = rlctl.diff(SOURCE, fixed).differences
    assert (changed.first.value, changed.second.value) == (125, 100)
    with pytest.raises(UsageError, match="the runner is 'trl'"):
        rlctl.check(SOURCE, runner="trl")


def test_everything_is_escaped_once() -> None:
    made = html.element("p", "<&\x1b[1m", html.element("b", '"x"'), title='a"<b')
    assert made == '<p title="a&quot;&lt;b">&lt;&amp;<b>&quot;x&quot;</b></p>'
    assert html.table(["a"], []) == ""
    assert read(html.page("<t>", html.table(["a", ""], [["1", "2"]]))).text.count("<t>") == 2
