"""The built-in engine answers as Transformers itself does: same greedy tokens, same log-probs, same random draws alone or among others."""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, MistralConfig, Qwen2Config, Qwen3MoeConfig

from rlctl.common.errors import RunError
from rlctl.runtime.buffers.record import group_of, text_of
from rlctl.runtime.experience.samples import RolloutGroup, samples_of
from rlctl.runtime.models.routers import Routers
from rlctl.runtime.rollout.interface import RolloutEngine
from rlctl.runtime.rollout.transformers import TransformersEngine
from rlctl.runtime.types import Prompt, Request, Response, Sampling

from .conftest import CONFIGS, SIZES, VOCAB, MakeModel

LENGTHS = [3, 7, 7, 1, 12, 5]
GREEDY = Sampling(max_tokens=12, temperature=0.0)


def prompts(lengths: list[int], *, seed: int = 1) -> list[tuple[int, ...]]:
    generator = torch.Generator().manual_seed(seed)
    return [tuple(torch.randint(0, VOCAB, (length,), generator=generator).tolist()) for length in lengths]


def requests(sampling: Sampling, *, n: int = 2, lengths: list[int] | None = None) -> list[Request]:
    return [Request(p, sampling, n, seed=200 + i) for i, p in enumerate(prompts(lengths or LENGTHS))]


def upstream_greedy(model: Any, prompt: tuple[int, ...], tokens: int, **settings: Any) -> tuple[int, ...]:
    inputs = torch.tensor([prompt])
    output = model.generate(
        inputs,
        attention_mask=torch.ones_like(inputs),
        do_sample=False,
        max_new_tokens=tokens,
        pad_token_id=0,
        **settings,
    )
    return tuple(output[0, len(prompt) :].tolist())


def upstream_log_probs(
    model: torch.nn.Module, prompt: tuple[int, ...], response: Response, temperature: float
) -> torch.Tensor:
    tokens = torch.tensor([prompt + response.token_ids])
    with torch.no_grad():
        logits = model(tokens).logits[0, len(prompt) - 1 : -1].float()
    return torch.log_softmax(logits / temperature, -1).gather(1, tokens[0, len(prompt) :, None])[:, 0]


@pytest.mark.parametrize("attention", ["auto", "sdpa", "eager"])
@pytest.mark.parametrize("kind", ["qwen2", "qwen3", "llama"])
def test_greedy_tokens_are_those_of_transformers(make_model: MakeModel, kind: str, attention: str) -> None:
    folder = make_model(kind)
    upstream = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    engine = TransformersEngine(str(folder), attention=attention)
    for request, answers in zip(requests(GREEDY), engine.generate(requests(GREEDY)), strict=True):
        expected = upstream_greedy(upstream, request.token_ids, 12)
        assert [a.token_ids for a in answers] == [expected, expected]


def test_penalty_and_endings_are_those_of_transformers(make_model: MakeModel) -> None:
    folder = make_model()
    upstream = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    stops = tuple(range(0, VOCAB, 4))
    sampling = dataclasses.replace(GREEDY, repetition_penalty=1.5, min_tokens=4, stop_token_ids=stops)
    asked = requests(sampling, n=1)
    answers = [group[0].token_ids for group in TransformersEngine(str(folder)).generate(asked)]
    settings = {"repetition_penalty": 1.5, "min_new_tokens": 4, "eos_token_id": list(stops)}
    assert answers == [upstream_greedy(upstream, request.token_ids, 12, **settings) for request in asked]
    assert {len(answer) for answer in answers} > {5}
    plain = TransformersEngine(str(folder)).generate([dataclasses.replace(r, sampling=GREEDY) for r in asked])
    assert answers != [group[0].token_ids for group in plain]


def sliding_configs() -> Iterator[tuple[str, object]]:
    yield "mistral", MistralConfig(**SIZES, sliding_window=6)
    yield (
        "mixed",
        Qwen2Config(
            **SIZES, use_sliding_window=True, sliding_window=6, layer_types=["full_attention", "sliding_attention"]
        ),
    )


@pytest.mark.parametrize("attention", ["auto", "eager"])
@pytest.mark.parametrize(("name", "config"), list(sliding_configs()))
def test_sliding_window_layers_forget_as_in_transformers(
    make_model: MakeModel, name: str, config: object, attention: str
) -> None:
    folder = make_model(name, config=config)
    upstream = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    engine = TransformersEngine(str(folder), attention=attention)
    for request, answers in zip(requests(GREEDY, n=1), engine.generate(requests(GREEDY, n=1)), strict=True):
        assert answers[0].token_ids == upstream_greedy(upstream, request.token_ids, 12)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("kind", ["qwen2", "qwen3", "llama"])
def test_log_probs_are_those_of_a_full_forward(make_model: MakeModel, kind: str, temperature: float) -> None:
    folder = make_model(kind)
    upstream = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    # Top-k, top-p and penalties change what is drawn, and must not change the log-probs of it.
    sampling = Sampling(max_tokens=9, temperature=temperature, top_k=20, top_p=0.9, repetition_penalty=1.3)
    asked = requests(sampling)
    for request, answers in zip(asked, TransformersEngine(str(folder)).generate(asked), strict=True):
        for answer in answers:
            expected = upstream_log_probs(upstream, request.token_ids, answer, temperature)
            torch.testing.assert_close(torch.tensor(answer.log_probs), expected, atol=1e-4, rtol=0)


def test_greedy_log_probs_are_those_of_temperature_one(make_model: MakeModel) -> None:
    folder = make_model()
    upstream = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    request = requests(GREEDY)[0]
    answer = TransformersEngine(str(folder)).generate([request])[0][0]
    expected = upstream_log_probs(upstream, request.token_ids, answer, 1.0)
    torch.testing.assert_close(torch.tensor(answer.log_probs), expected, atol=1e-4, rtol=0)


def test_bfloat16_stays_near_float32(make_model: MakeModel) -> None:
    folder = make_model()
    upstream = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    engine = TransformersEngine(str(folder), dtype=torch.bfloat16)
    assert {p.dtype for p in engine.model.parameters()} == {torch.bfloat16}
    request = requests(Sampling(max_tokens=8))[1]
    answer = engine.generate([request])[0][0]
    expected = upstream_log_probs(upstream, request.token_ids, answer, 1.0)
    assert (torch.tensor(answer.log_probs) - expected).abs().mean() < 0.3


@pytest.mark.parametrize("max_batch_rows", [256, 8, 5, 1])
def test_a_request_draws_the_same_alone_or_among_others(make_model: MakeModel, max_batch_rows: int) -> None:
    folder = str(make_model())
    stops = (3, 9, 17, 40)
    sampling = Sampling(max_tokens=10, stop_token_ids=stops)
    asked = requests(sampling, n=4, lengths=[*LENGTHS, 9, 2, 20, 4])
    together = TransformersEngine(folder, max_batch_rows=max_batch_rows, max_prompt_positions=24).generate(asked)
    alone = TransformersEngine(folder)
    for request, answers in zip(asked, together, strict=True):
        assert [a.token_ids for a in alone.generate([request])[0]] == [a.token_ids for a in answers]
        fewer = dataclasses.replace(request, n=2)
        assert [a.token_ids for a in alone.generate([fewer])[0]] == [a.token_ids for a in answers[:2]]
    assert len({a.token_ids for answers in together for a in answers}) > 30, "responses and requests draw apart"


def test_another_seed_draws_otherwise(make_model: MakeModel) -> None:
    engine = TransformersEngine(str(make_model()))
    request = requests(Sampling(max_tokens=10))[0]
    other = dataclasses.replace(request, seed=request.seed + 1)
    assert engine.generate([request]) == engine.generate([request])
    assert engine.generate([request])[0][0].token_ids != engine.generate([other])[0][0].token_ids


def test_drawn_tokens_follow_the_softmax(make_model: MakeModel) -> None:
    folder = make_model()
    upstream = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    n, temperature = 20_000, 2.0
    prompt = prompts([5])[0]
    request = Request(prompt, Sampling(max_tokens=1, temperature=temperature), n, seed=7)
    answers = TransformersEngine(str(folder), max_batch_rows=n).generate([request])[0]
    with torch.no_grad():
        probs = torch.softmax(upstream(torch.tensor([prompt])).logits[0, -1].double() / temperature, -1)
    counts = torch.bincount(torch.tensor([a.token_ids[0] for a in answers]), minlength=VOCAB).double()
    expected = probs * n
    common = expected >= 5
    observed = torch.cat([counts[common], counts[~common].sum()[None]])
    wanted = torch.cat([expected[common], expected[~common].sum()[None]])
    chi_square = ((observed - wanted) ** 2 / wanted).sum().item()
    freedom = len(wanted) - 1
    assert freedom > 15
    # Wilson and Hilferty's normal approximation of the chi-square distribution; 3.7 sigma is one seed in ten thousand.
    deviation = ((chi_square / freedom) ** (1 / 3) - (1 - 2 / (9 * freedom))) / (2 / (9 * freedom)) ** 0.5
    assert deviation < 3.7


@pytest.mark.parametrize("max_batch_rows", [64, 6])
def test_every_position_is_computed_once_and_a_finished_row_no_further(
    make_model: MakeModel, monkeypatch: pytest.MonkeyPatch, max_batch_rows: int
) -> None:
    engine = TransformersEngine(str(make_model()), max_batch_rows=max_batch_rows)
    computed = []
    engine.model.register_forward_pre_hook(
        lambda module, args, kwargs: computed.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    asked = requests(Sampling(max_tokens=16, stop_token_ids=tuple(range(0, VOCAB, 6))), n=8)
    answers = engine.generate(asked)
    lengths = [len(a.token_ids) for group in answers for a in group]
    assert len(set(lengths)) > 4, "the rows finish at different times"
    prompt, decoded = sum(LENGTHS), sum(length - 1 for length in lengths)
    counted = engine.tokens_computed
    assert (counted.prompt, counted.decoded) == (prompt, decoded)
    assert sum(rows * tokens for rows, tokens in computed) == prompt + decoded + counted.padding == counted.total
    if max_batch_rows == 64:
        assert [shape for shape in computed if shape[1] > 1] == [(6, 12)], "all prompts in one forward, none repeated"
        assert counted.padding == 6 * 12 - prompt


def test_a_group_larger_than_the_batch_computes_its_prompt_once(make_model: MakeModel) -> None:
    engine = TransformersEngine(str(make_model()), max_batch_rows=4)
    request = Request(prompts([9])[0], Sampling(max_tokens=5, stop_token_ids=(2, 5, 11)), 19, seed=3)
    answers = engine.generate([request])[0]
    assert len(answers) == 19
    assert engine.tokens_computed.prompt == 9
    at_once = TransformersEngine(str(make_model()), max_batch_rows=19).generate([request])[0]
    assert [a.token_ids for a in answers] == [a.token_ids for a in at_once]


def test_long_runs_of_short_rows_reuse_the_cache(make_model: MakeModel) -> None:
    """Rows come and go until the cursor has passed the end of the cache many times."""
    engine = TransformersEngine(str(make_model()), max_batch_rows=3)
    stops = Sampling(max_tokens=9, temperature=0.0, stop_token_ids=tuple(range(0, VOCAB, 3)))
    asked = [
        Request(p, dataclasses.replace(stops, max_tokens=2 + i % 8), 2, seed=i)
        for i, p in enumerate(prompts([2 + i % 11 for i in range(40)]))
    ]
    alone = TransformersEngine(str(make_model()))
    for request, answers in zip(asked, engine.generate(asked), strict=True):
        assert [a.token_ids for a in answers] == [a.token_ids for a in alone.generate([request])[0]]


def test_a_stop_token_ends_a_response_and_is_part_of_it(make_model: MakeModel) -> None:
    engine = TransformersEngine(str(make_model()))
    free = engine.generate(requests(Sampling(max_tokens=16)))
    stop = free[2][1].token_ids[6]
    stopped = engine.generate(requests(Sampling(max_tokens=16, stop_token_ids=(stop,))))
    ignored = engine.generate(requests(Sampling(max_tokens=16, stop_token_ids=(stop,), ignore_eos=True)))
    for whole, cut in zip(chain(*free), chain(*stopped), strict=True):
        ends = whole.token_ids.index(stop) + 1 if stop in whole.token_ids else 16
        assert cut.token_ids == whole.token_ids[:ends]
        assert len(cut.log_probs) == ends
        assert cut.finish_reason == ("stop" if stop in whole.token_ids else "length")
    assert stopped[2][1].finish_reason == "stop"
    assert [[a.token_ids for a in g] for g in ignored] == [[a.token_ids for a in g] for g in free]
    assert {a.finish_reason for g in ignored for a in g} == {"length"}


def test_no_ending_token_before_min_tokens(make_model: MakeModel) -> None:
    engine = TransformersEngine(str(make_model()))
    stops = tuple(range(0, VOCAB, 2))
    plain = engine.generate(requests(Sampling(max_tokens=12, stop_token_ids=stops), n=8))
    forced = engine.generate(requests(Sampling(max_tokens=12, stop_token_ids=stops, min_tokens=5), n=8))
    assert min(len(a.token_ids) for g in plain for a in g) < 5
    lengths = [len(a.token_ids) for g in forced for a in g]
    assert min(lengths) == 6, "five tokens that end nothing, then the first that may"
    assert all(token not in stops for g in forced for a in g for token in a.token_ids[:5])


def test_requests_of_one_call_keep_their_own_sampling(make_model: MakeModel) -> None:
    engine = TransformersEngine(str(make_model()))
    samplings = [
        Sampling(max_tokens=6),
        Sampling(max_tokens=9, temperature=0.0),
        Sampling(max_tokens=4, temperature=0.5, top_k=3),
        Sampling(max_tokens=12, top_p=0.6, stop_token_ids=(1, 2, 3, 4, 5, 6)),
        Sampling(max_tokens=7, repetition_penalty=5.0),
        Sampling(max_tokens=5, min_tokens=5, stop_token_ids=tuple(range(32))),
    ]
    asked = [Request(p, s, 3, seed=i) for i, (p, s) in enumerate(zip(prompts(LENGTHS), samplings, strict=True))]
    mixed = engine.generate(asked)
    for request, answers in zip(asked, mixed, strict=True):
        alone = engine.generate([request])[0]
        assert [a.token_ids for a in answers] == [a.token_ids for a in alone]
        torch.testing.assert_close([a.log_probs for a in answers], [a.log_probs for a in alone], atol=1e-4, rtol=1e-4)
    assert [len(a.token_ids) for a in mixed[4]] == [7, 7, 7]


def test_new_weights_answer_as_a_fresh_engine_with_them(make_model: MakeModel) -> None:
    for kind in CONFIGS:
        engine = TransformersEngine(str(make_model(kind)))
        fresh = TransformersEngine(str(make_model(kind, seed=5)), weight_version=7)
        asked = requests(Sampling(max_tokens=8))
        stale = engine.generate(asked)
        engine.load_weights(
            AutoModelForCausalLM.from_pretrained(make_model(kind, seed=5)).named_parameters(), version=7
        )
        answers = engine.generate(asked)
        assert answers == fresh.generate(asked)
        assert [[a.token_ids for a in g] for g in answers] != [[a.token_ids for a in g] for g in stale]
        assert {a.weight_version for g in stale for a in g} == {0}
        assert {a.weight_version for g in answers for a in g} == {engine.weight_version} == {7}


def test_half_loaded_weights_answer_nothing(make_model: MakeModel) -> None:
    engine = TransformersEngine(str(make_model()))
    weights = list(engine.model.state_dict().items())
    with pytest.raises(RunError, match="were not sent"):
        engine.load_weights(weights[:3], version=1)
    with pytest.raises(RunError, match="loading weight version 1 failed half-way"):
        engine.generate(requests(GREEDY))
    assert engine.weight_version == 0
    engine.load_weights(weights, version=2)
    assert engine.generate(requests(GREEDY))[0][0].weight_version == 2


def test_diverged_weights_are_refused_and_leave_no_trace(make_model: MakeModel) -> None:
    engine = TransformersEngine(str(make_model()), max_batch_rows=16)
    weights = [(name, tensor.clone()) for name, tensor in engine.model.named_parameters()]
    everywhere = [Request(prompts([12])[0], GREEDY, 16, seed=0)]
    # A row leaves and its place stays empty for six steps; the row that comes then has slots that only an earlier call wrote.
    samplings = [dataclasses.replace(GREEDY, max_tokens=tokens) for tokens in (2, 12, 8, 3)]
    given = zip(prompts([12, 12, 12, 1]), samplings, (1, 14, 1, 2), strict=True)
    gaps = [Request(prompt, sampling, n, seed=0) for prompt, sampling, n in given]
    before = engine.generate(gaps)
    engine.load_weights([(name, torch.full_like(tensor, torch.nan)) for name, tensor in weights], version=1)
    with pytest.raises(RunError, match="log-probs that are not finite at weight version 1"):
        engine.generate(everywhere)
    engine.load_weights(weights, version=0)
    assert engine.generate(gaps) == before


def test_sleep_frees_the_cache_and_wake_changes_no_answer(make_model: MakeModel) -> None:
    engine = TransformersEngine(str(make_model()))
    before = engine.generate(requests(Sampling(max_tokens=8)))
    engine.sleep()
    with pytest.raises(RunError, match="the engine sleeps"):
        engine.generate(requests(GREEDY))
    engine.wake()
    assert engine.generate(requests(Sampling(max_tokens=8))) == before
    engine.close()
    engine.close()
    with pytest.raises(RunError, match="the engine is closed"):
        engine.generate(requests(GREEDY))
    for use in (engine.sleep, engine.wake, lambda: engine.load_weights([], version=3)):
        with pytest.raises(RunError, match="the engine is closed"):
            use()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_answers_as_the_cpu_and_sleeps_empty(make_model: MakeModel) -> None:
    folder = str(make_model())
    engine = TransformersEngine(folder, device="cuda")
    expected = [[a.token_ids for a in group] for group in TransformersEngine(folder).generate(requests(GREEDY))]
    assert [[a.token_ids for a in group] for group in engine.generate(requests(GREEDY))] == expected
    engine.sleep()
    assert {p.device.type for p in engine.model.parameters()} == {"cpu"}
    engine.wake()
    assert [[a.token_ids for a in group] for group in engine.generate(requests(GREEDY))] == expected


def test_no_requests_are_no_answers(make_model: MakeModel) -> None:
    assert TransformersEngine(str(make_model())).generate([]) == []


def test_the_engine_has_the_interface() -> None:
    for name, member in vars(RolloutEngine).items():
        if inspect.isfunction(member) and not name.startswith("_"):
            assert inspect.signature(getattr(TransformersEngine, name)) == inspect.signature(member), name


def test_the_experts_of_a_response_are_those_of_one_pass_over_it(tmp_path: Path) -> None:
    """Of prompt and response but for the last token, whether rows join and leave or a call decodes them together."""
    torch.manual_seed(2)
    config = Qwen3MoeConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, moe_intermediate_size=16, num_hidden_layers=2, head_dim=8,
        num_attention_heads=4, num_key_value_heads=2, num_experts=8, num_experts_per_tok=2, max_position_embeddings=128,
        initializer_range=0.3,
    )  # fmt: skip
    model = AutoModelForCausalLM.from_config(config)
    model.save_pretrained(tmp_path)
    engine = TransformersEngine(str(tmp_path), max_batch_rows=3, records_experts=True)
    sampling = Sampling(max_tokens=9, temperature=1.0, stop_token_ids=(3, 9))
    requests = [Request((1, 2, 3 + i, *range(20, 20 + i)), sampling, 2, seed=i) for i in range(4)]
    answered = [response for group in engine.generate(requests) for response in group]
    engine.submit(dict(enumerate(requests)))
    streamed: dict[tuple[int, int], Response] = {}
    while len(streamed) < 8:
        for each in engine.poll(0.01):
            streamed[each.ticket, each.index] = each.response
            engine._streaming.set_aside()  # what is computed again keeps the experts that it went to first
    routers = Routers(model.eval())
    for number, response in enumerate(answered):
        request = requests[number // 2]
        with torch.no_grad(), routers.recording() as found:
            model(torch.tensor([[*request.token_ids, *response.token_ids[:-1]]]))
        expected = torch.stack([found[place] for place in range(2)], 1).sort(-1).values
        for mine in (response, streamed[number // 2, number % 2]):
            assert mine.token_ids == response.token_ids
            assert mine.routed_experts is not None
            assert torch.equal(mine.routed_experts.long().sort(-1).values, expected)
    group = RolloutGroup(Prompt(0, "s", requests[0].token_ids, "p"), answered[:2], [0.0, 1.0])
    again = group_of(json.loads(text_of(group)))
    for mine, theirs in zip(again.responses, group.responses, strict=True):
        assert mine.routed_experts is not None
        assert theirs.routed_experts is not None
        assert torch.equal(mine.routed_experts, theirs.routed_experts)
    assert [sample.routed_experts is not None for sample in samples_of([again], train_on_cut_prompts=True)] == [
        True,
        True,
    ]
