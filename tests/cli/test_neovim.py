"""``rlctl lsp`` in Neovim: a script is repaired by its diagnostics and quick fixes alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_lsp import SCRIPT

ROOT = Path(__file__).parents[2]
REPAIR = """
local python, folder = vim.env.RLCTL_PYTHON, vim.fn.getcwd()
local id = vim.lsp.start_client({name = "rlctl", cmd = {python, "-m", "rlctl", "lsp"}, root_dir = folder})
vim.lsp.buf_attach_client(0, id)
local told = {}

local function by_code(code)
  for _, found in ipairs(vim.diagnostic.get(0)) do
    if found.code == code then return found end
  end
end

local function repair(code)
  vim.wait(60000, function() return by_code(code) ~= nil end, 20)
  local found = by_code(code)
  table.insert(told, {code = code, line = found.lnum, column = found.col, message = found.message})
  local at = {line = found.lnum, character = found.col}
  local params = {
    textDocument = vim.lsp.util.make_text_document_params(),
    range = {start = at, ["end"] = at},
    context = {diagnostics = {}},
  }
  local answers = vim.lsp.buf_request_sync(0, "textDocument/codeAction", params, 60000)
  local action = answers[id].result[1]
  vim.lsp.util.apply_workspace_edit(action.edit, "utf-16")
  vim.wait(60000, function() return by_code(code) == nil end, 20)
end

repair("mistyped-key")
repair("mini-batch-uneven")
vim.cmd("write")
local left = vim.tbl_map(function(found) return found.severity end, vim.diagnostic.get(0))
vim.fn.writefile({vim.fn.json_encode({told = told, left = left})}, "told.json")
vim.cmd("qall!")
"""


@pytest.mark.skipif(shutil.which("nvim") is None, reason="nvim is not installed")
def test_a_script_is_repaired_in_neovim(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(SCRIPT)
    (tmp_path / "train.jsonl").write_text('{"prompt": "1+1", "reward_model": {"ground_truth": "2"}}\n' * 100)
    (tmp_path / "repair.lua").write_text(REPAIR)
    environment = {**os.environ, "RLCTL_PYTHON": sys.executable, "PYTHONPATH": str(ROOT), "RLCTL_LANGUAGE": "en"}
    command = ["nvim", "--headless", "-u", "NONE", "-i", "NONE", "-n", "run.sh", "-c", "luafile repair.lua"]
    ended = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert (tmp_path / "told.json").exists(), ended.stderr
    said = json.loads((tmp_path / "told.json").read_text())
    line = SCRIPT.splitlines()[12]
    assert said["told"][0]["line"] == 12
    assert said["told"][0]["column"] == len(
        line[: line.index("actor_rollout_ref.rolout")].encode()
    )  # Neovim counts bytes
    assert 1 not in said["left"], "no error is left"
    repaired = (tmp_path / "run.sh").read_text()
    assert "actor_rollout_ref.rollout.temperature=1.0" in repaired
    assert "actor_rollout_ref.actor.ppo_mini_batch_size=20 \\\n" in repaired
    assert "中文😀名" in repaired
