"""The model is made as its section says: config, rotary embeddings, modules, and what is left untrained."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig

from rlctl.common.errors import PlanError, RunError
from rlctl.config.sections.model import Lora, Model, RopeScaling
from rlctl.config.sections.train import FusedKernels
from rlctl.runtime.models.config import changed_config, import_modules
from rlctl.runtime.train.losses import SftLoss
from rlctl.runtime.train.model import check_kernels, freeze
from tests.runtime.train import jobs
from tests.runtime.train.jobs import ALL_AT_ONCE, make_samples, settings
from tests.runtime.train.processes import Workers

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}


def changed(folder: Path, **section: Any) -> PreTrainedConfig:
    found = changed_config(Model(path=str(folder), **section), str(folder))
    assert found is not None
    return found


def test_nothing_set_changes_nothing(models: dict[str, Path]) -> None:
    assert changed_config(Model(path=str(models["qwen2"])), str(models["qwen2"])) is None


def test_overrides_go_over_config_json(models: dict[str, Path]) -> None:
    found = changed(
        models["qwen2"], overrides={"rms_norm_eps": 0.5, "rope_parameters": {"rope_theta": 5.0}, "novel": 0}
    )
    own = AutoConfig.from_pretrained(models["qwen2"])
    assert (found.rms_norm_eps, found.rope_parameters["rope_theta"]) == (0.5, 5.0)
    assert found.rope_parameters["rope_type"] == own.rope_parameters["rope_type"]
    assert found.hidden_size == own.hidden_size


@pytest.mark.parametrize("older", [False, True], ids=["rope_parameters", "rope_scaling"])
def test_rotary_embeddings_are_those_of_transformers(models: dict[str, Path], tmp_path: Path, older: bool) -> None:
    """In config files of both spellings, the model's own base where none is set."""
    values = json.loads((models["llama"] / "config.json").read_text())
    if older:
        values["rope_theta"] = values.pop("rope_parameters")["rope_theta"]
    (tmp_path / "config.json").write_text(json.dumps(values))
    found = changed(tmp_path, rope=RopeScaling(scaling=YARN))
    assert found.rope_parameters | YARN == found.rope_parameters
    assert found.rope_parameters["rope_theta"] == 10_000.0
    assert changed(tmp_path, rope=RopeScaling(theta=7.0)).rope_parameters["rope_theta"] == 7.0


def test_a_model_with_rotary_embeddings_for_each_layer_type_is_refused(models: dict[str, Path], tmp_path: Path) -> None:
    values = json.loads((models["llama"] / "config.json").read_text())
    values["rope_parameters"] = {"full_attention": {"rope_theta": 1.0}, "sliding_attention": {"rope_theta": 2.0}}
    (tmp_path / "config.json").write_text(json.dumps(values))
    with pytest.raises(RunError, match="one for all"):
        changed(tmp_path, rope=RopeScaling(theta=7.0))


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"overrides": {"rms_norm_epps": 0.5}}, "rms_norm_epps, which Qwen2Config does not have"),
        ({"overrides": {"num_hidden_layers": "two"}}, "does not take model.overrides"),
    ],
)
def test_overrides_that_the_model_does_not_take_are_refused(
    models: dict[str, Path], section: dict[str, Any], message: str
) -> None:
    with pytest.raises(RunError, match=message):
        changed(models["qwen2"], **section)


def test_the_engine_computes_the_changed_model(one: Workers, models: dict[str, Path]) -> None:
    samples = make_samples(3)
    section = {"overrides": {"rms_norm_eps": 0.5}, "rope": RopeScaling(theta=3.0, scaling=YARN)}
    [found] = one.run(jobs.log_probs_of_model, models["qwen2"], samples, section)
    model = AutoModelForCausalLM.from_pretrained(
        models["qwen2"], config=changed(models["qwen2"], **section), attn_implementation="eager"
    )
    plain = AutoModelForCausalLM.from_pretrained(models["qwen2"], attn_implementation="eager")
    for mine, sample in zip(found, samples, strict=True):
        for theirs, same in ((model, True), (plain, not sample.mask.any())):
            log_p = theirs(sample.token_ids[None]).logits[0, :-1].log_softmax(-1)
            drawn = log_p.gather(-1, sample.token_ids[1:, None]).squeeze(-1) * sample.mask[1:]
            assert torch.allclose(mine[1:], drawn, rtol=1e-4, atol=1e-4) is same


def test_modules_are_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "registers_models.py").write_text("import transformers\ntransformers.registered_here = True\n")
    (tmp_path / "is_broken.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    import_modules(Model(import_modules=("registers_models",)))
    import transformers

    assert transformers.registered_here
    del transformers.registered_here
    for name, message in (("is_not_there", "ModuleNotFoundError"), ("is_broken", "ZeroDivisionError")):
        with pytest.raises(RunError, match=f"{name} cannot be imported: {message}"):
            import_modules(Model(import_modules=(name,)))


def test_what_is_frozen_stays_as_it_was(two: Workers, models: dict[str, Path]) -> None:
    """By pattern and by module; the rest moves as it would, for its gradient is the same."""
    samples, patterns = make_samples(5), ("*.mlp.*", "model.embed_tokens")
    (weights, _), _ = two.run(jobs.updates, models["llama"], settings(), samples, SftLoss(), ALL_AT_ONCE)
    found, *_ = two.run(jobs.updates_of_model, models["llama"], settings(), samples, {"freeze": patterns})
    start = AutoModelForCausalLM.from_pretrained(models["llama"]).state_dict()
    frozen = {name for name in found if ".mlp." in name or "embed_tokens" in name}
    assert frozen
    for name, tensor in found.items():
        assert torch.equal(tensor, start[name]) is (name in frozen), name
        if name not in frozen:
            torch.testing.assert_close(tensor, weights[name], rtol=1e-5, atol=2e-6)


def test_patterns_that_fit_nothing_or_everything_are_refused(models: dict[str, Path]) -> None:
    model = AutoModelForCausalLM.from_pretrained(models["qwen2"])
    for pattern, message in (("vision_tower.*", r"vision_tower\.\*, which no parameter"), ("*", "leaves no parameter")):
        with pytest.raises(PlanError, match=message):
            freeze(model, (pattern,))


def test_kernels_that_are_not_here_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PlanError, match="liger-kernel is not installed"):
        check_kernels(FusedKernels(liger=True), "cuda")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    with pytest.raises(PlanError, match="need a GPU"):
        check_kernels(FusedKernels(liger=True), "cpu")
    check_kernels(FusedKernels(liger=True), "cuda")


@pytest.mark.parametrize("kind", ["qwen2", "llama", "gpt2"])
def test_log_probs_without_whole_logits_train_the_same(two: Workers, models: dict[str, Path], kind: str) -> None:
    samples, train = make_samples(6), settings(jobs.FLOAT64, epsilon=1.0)
    fused = dataclasses.replace(train, fused_kernels=FusedKernels(enabled=True))
    loss = jobs.RL_LOSS
    (weights, metrics), _ = two.run(jobs.updates, models[kind], train, samples, loss, ALL_AT_ONCE)
    (found, again), _ = two.run(jobs.updates, models[kind], fused, samples, loss, ALL_AT_ONCE)
    assert again[0] == pytest.approx(metrics[0], rel=1e-11, abs=1e-11)
    for name, tensor in found.items():
        torch.testing.assert_close(tensor, weights[name], rtol=0, atol=1e-12)


def test_a_model_that_goes_on_with_its_logits_gets_them_whole(one: Workers, models: dict[str, Path]) -> None:
    """Log-probs are right all the same; training without whole logits is refused, as it is with an adapter on the head."""
    [(found, expected)] = one.run(jobs.scaled_logits, models["llama"], make_samples(3))
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)
    fused = dataclasses.replace(settings(), fused_kernels=FusedKernels(enabled=True))
    adapter = {"lora": Lora(rank=2, target_modules=("lm_head",))}
    with pytest.raises(PlanError, match="after its last layer"):
        one.run(jobs.updates_of_model, models["llama"], fused, make_samples(3), adapter)


def test_activations_that_wait_elsewhere_are_the_same(one: Workers, models: dict[str, Path]) -> None:
    [(moved, ((weights, metrics), (expected, plain)))] = one.run(
        jobs.offloaded_activations, models["qwen2"], make_samples(3)
    )
    assert moved[0] > moved[1] == 0
    assert metrics == plain
    assert all(torch.equal(tensor, expected[name]) for name, tensor in weights.items())
