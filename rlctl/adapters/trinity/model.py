"""Trinity: mode, names, the model with its lengths and adapters."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from rlctl.adapters.engine.rules import (
    ABSENT,
    BadValueError,
    CustomRule,
    DialectKey,
    Dropped,
    Flow,
    Inexpressible,
    Key,
    Out,
    Reading,
    Rule,
    Tree,
    Writing,
    nothing,
)
from rlctl.adapters.engine.values import (
    Emptied,
    Listed,
    Names,
    Partly,
)
from rlctl.adapters.trinity.batch import supervised
from rlctl.adapters.trinity.keys import MODEL, MODES, ROLL
from rlctl.adapters.trinity.workflows import limit_of_answers, tasksets
from rlctl.common.messages.reasons import said
from rlctl.planning import arithmetic

SERVES = "rlctl serve FILE --collect does what Trinity's serve mode does"


def _mode(view: Reading) -> Iterator[Flow]:
    mode = str(view.get("mode"))
    names = {
        "both": "full",
        "explore": "rollout_only",
        "train": "train_only",
        "bench": "evaluate_only",
        "serve": "rollout_only",
        "colocate": "full",
    }
    value = "full" if supervised(view) else names.get(mode, "full")
    yield Flow(
        view.to("run.mode"),
        value,
        (view.path("mode"),),
        "derived" if mode == "serve" else "mapped",
        "SFT and DPO train on a dataset, without rollout" if supervised(view) else SERVES if mode == "serve" else "",
    )


def _write_mode(view: Writing) -> Iterator[Out]:
    config = view.config
    used = (view.to("run.mode"),)
    if config.algorithm.objective.choice in ("sft", "dpo"):
        yield Flow(view.path("mode"), "train", (*used, view.to("algorithm.objective.type")), always=True)
        return
    names = {"full": "both", "rollout_only": "explore", "train_only": "train", "evaluate_only": "bench"}
    mode = names[config.run.mode]
    shared = config.placement.layout == "colocated" and arithmetic.devices(config) == 1
    if mode == "both" and shared and view.version >= (0, 5):
        mode = "colocate"
    yield Flow(view.path("mode"), mode, used, always=mode != "both")


def lengths(view: Reading) -> tuple[int | None, int | None, int | None]:
    total, prompt, response = (
        view.get(f"model.max_{name}") for name in ("model_len", "prompt_tokens", "response_tokens")
    )
    if prompt is None and isinstance(total, int):
        if isinstance(response, int):
            response = min(response, total - 1)  # 0.6.0: config_validator.py, _check_model_len
        prompt = total - response if isinstance(response, int) else total // 2
    if response is None and isinstance(total, int) and isinstance(prompt, int):
        prompt = min(prompt, total - 1)
        response = total - prompt
    return total, prompt, response


def _read_lengths(view: Reading) -> Iterator[Flow]:
    total, prompt, response = lengths(view)
    keys = {name: (view.path(f"model.max_{name}"),) for name in ("model_len", "prompt_tokens", "response_tokens")}
    if not supervised(view) and (limit := limit_of_answers(view)) is not None:
        place = (*tasksets(view)[0], "rollout_args", "max_tokens")
        yield Flow(view.to("rollout.max_response_tokens"), limit, (place,), same=True)
    if supervised(view):
        yield Flow(view.to("data.max_sequence_tokens"), total, keys["model_len"], same=True)
    elif isinstance(prompt, int) and isinstance(response, int) and total == prompt + response:
        yield Flow((), None, keys["model_len"], "mapped", "the sum of prompt and response")
        yield Flow(view.to("model.max_context_tokens"), None, ())
    else:
        yield Flow(view.to("model.max_context_tokens"), total, keys["model_len"], same=True)
    for name, value, to in (
        ("prompt_tokens", prompt, "data.max_prompt_tokens"),
        ("response_tokens", response, "rollout.max_response_tokens"),
    ):
        if isinstance(value, str) or (isinstance(value, int) and value > 0):  # text is refused with its line
            written = view.get(f"model.max_{name}") == value
            used = keys[name] if written else (*keys[name], *keys["model_len"])
            note = ""
            if isinstance(total, int) and isinstance(value, int) and not written:
                note = said("{total} - {other} tokens", total=total, other=total - value)
            yield Flow(view.to(to), value, used, "mapped" if written else "derived", note, same=written)


def _write_lengths(view: Writing) -> Iterator[Out]:
    config = view.config
    if config.algorithm.objective.choice in ("sft", "dpo"):
        total = config.data.max_sequence_tokens or config.model.max_context_tokens
        used = view.to("data.max_sequence_tokens" if config.data.max_sequence_tokens else "model.max_context_tokens")
        if total:
            yield Flow(view.path("model.max_model_len"), total, (used,), same=True, always=True)
        for key, to in (
            ("prompt_tokens", "data.max_prompt_tokens"),
            ("response_tokens", "rollout.max_response_tokens"),
        ):
            if view.explicit(to):
                yield Flow(view.path(f"model.max_{key}"), view.get(to), (view.to(to),), same=True)
        return
    prompt, response = config.data.max_prompt_tokens, config.rollout.max_response_tokens
    total = config.model.max_context_tokens
    yield Flow(
        view.path("model.max_prompt_tokens"), prompt, (view.to("data.max_prompt_tokens"),), same=True, always=True
    )
    yield Flow(
        view.path("model.max_response_tokens"),
        response,
        (view.to("rollout.max_response_tokens"),),
        same=True,
        always=True,
    )
    lengths = (view.to("data.max_prompt_tokens"), view.to("rollout.max_response_tokens"))
    if total is not None and total < prompt + response:
        note = said(
            "Trinity requires a context of {prompt} prompt + {response} response tokens: {value}, not {total}",
            prompt=prompt,
            response=response,
            value=prompt + response,
            total=total,
        )
        yield Flow(view.path("model.max_model_len"), prompt + response, lengths, "derived", always=True)
        yield Inexpressible((view.to("model.max_context_tokens"),), note)
    elif total is None:
        note = said("{prompt} prompt + {response} response tokens", prompt=prompt, response=response)
        yield Flow(view.path("model.max_model_len"), prompt + response, lengths, "derived", note, always=True)
    else:
        yield Flow(
            view.path("model.max_model_len"), total, (view.to("model.max_context_tokens"),), same=True, always=True
        )


def _read_template(view: Reading) -> Iterator[Flow]:
    path, text = view.get("model.chat_template_path"), view.get("model.custom_chat_template")
    used = (view.path("model.chat_template_path" if path else "model.custom_chat_template"),)
    yield Flow(view.to("model.chat_template"), path or text, used, same=True)
    thinking = view.get("model.enable_thinking")
    if thinking is None:
        thinking = view.get(f"{ROLL}.enable_thinking")
    if thinking is not None:
        keys = (view.path("model.enable_thinking"), view.path(f"{ROLL}.enable_thinking"))
        yield Flow(view.to("model.chat_template_args.enable_thinking"), thinking, keys, same=True)


def _write_template(view: Writing) -> Iterator[Out]:
    text, used = view.config.model.chat_template, (view.to("model.chat_template"),)
    if text is not None:
        is_path = "\n" not in text and text.endswith((".jinja", ".jinja2", ".txt", ".j2"))
        yield Flow(
            view.path("model.chat_template_path" if is_path else "model.custom_chat_template"), text, used, same=True
        )
    for key, value in view.config.model.chat_template_args.items():
        path = (view.to("model.chat_template_args"),)
        if key == "enable_thinking":
            yield Flow(view.path("model.enable_thinking"), value, path)
        else:
            yield Inexpressible(path, said("Trinity passes no {key} to the chat template", key=key))


def _read_lora(view: Reading) -> Iterator[Flow]:
    several = view.get("model.lora_configs")
    used = (view.path("model.lora_configs"),)
    if not isinstance(several, list) or not several:
        yield Flow(view.to("model.lora"), None, used)
        return
    if not isinstance(several[0], Mapping):
        raise BadValueError(
            said("holds {several!r}; expected a mapping for each adapter", several=several[0]), key=(*used[0], 0)
        )
    root = (*view.path("model.lora_configs"), 0)
    yield Flow(view.to("model.lora"), {}, ())
    values = {
        "lora_rank": 32,
        "lora_alpha": 32,
        "lora_dtype": "auto",
        "target_modules": "all-linear",
        "exclude_modules": None,
        **several[0],
    }
    for key, field in LORA.items():
        value = values.get(key)
        if key in ("target_modules", "exclude_modules"):
            value = [] if value is None else list(value) if isinstance(value, list) else _modules(value)
        if value is not None:
            yield Flow(view.to(f"model.lora.{field}"), value, ((*root, key),), same=not isinstance(value, list))
    for index in range(1, len(several)):
        yield Flow(
            (), None, ((*view.path("model.lora_configs"), index),), "dead", "Trinity trains the first adapter only"
        )


LORA = {
    "name": "name",
    "path": "adapter_path",
    "base_model_name": "base_model",
    "lora_rank": "rank",
    "lora_alpha": "alpha",
    "lora_dtype": "dtype",
    "target_modules": "target_modules",
    "exclude_modules": "exclude_modules",
}


_SUFFIXES = re.compile(r"\.\*\\\.\(([^()]+)\)")


def _modules(text: str) -> list[str]:
    """The names in a pattern that ``_pattern`` made; any other pattern is one item."""
    found = _SUFFIXES.fullmatch(text)
    return found[1].split("|") if found else [text]


def _pattern(names: list[str]) -> str:
    """Modules as Trinity has them: one string, which PEFT matches against a module's whole name if there are several."""
    return names[0] if len(names) == 1 else rf".*\.({'|'.join(names)})"


def _write_lora(view: Writing) -> Iterator[Out]:
    lora = view.get("model.lora")
    if not isinstance(lora, Mapping):
        yield Flow((), None, (view.to("model.lora"),))
        return
    root = (*view.path("model.lora_configs"), 0)
    usual = {
        "lora_dtype": "auto",
        "target_modules": ["all-linear"],
        "exclude_modules": [],
        "path": None,
        "base_model_name": None,
    }
    yield Flow(
        (*root, "name"),
        lora["name"] or "lora",
        (view.to("model.lora.name"), view.to("model.lora")),
        same=bool(lora["name"]),
        always=True,
    )
    for key, field in LORA.items():
        value, used = lora[field], (view.to(f"model.lora.{field}"),)
        if key == "name" or value == usual.get(key, ABSENT):
            yield Flow((), None, used)
        elif key == "lora_alpha":
            yield Flow((*root, key), int(value) if value == int(value) else value, used, always=True)
        else:
            yield Flow((*root, key), _pattern(value) if isinstance(value, list) else value, used, always=True)
    for field, neutral in (("dropout", 0.0), ("merge_for_rollout", False)):
        used = (view.to(f"model.lora.{field}"),)
        yield (
            Flow((), None, used)
            if lora[field] == neutral
            else Inexpressible(used, said("Trinity's adapters have no {field}", field=field))
        )


def _write_folder(view: Writing) -> Iterator[Out]:
    """The root that makes the folder of the checkpoints what it was, or as near as Trinity's own parts of it allow."""
    run, folder = view.config.run, view.config.checkpoint.folder
    parts = [part for part in (run.project, run.group, run.name) if part]
    inner, used = "/" + "/".join(parts), (view.to("checkpoint.folder"),)
    key = view.path("checkpoint_root_dir")
    if folder is not None:
        root = folder.removesuffix(inner) if folder.endswith(inner) else folder
        yield Flow(key, root or "/", used, "derived", said("Trinity adds {inner} itself", inner=inner), always=True)
        yield Inexpressible((view.to("run.folder"),), "Trinity has one folder, the checkpoint folder", idle=True)
        if not folder.endswith(inner):
            yield Inexpressible(
                used, said("Trinity puts checkpoints under {root}{inner}", root=root, inner=inner), idle=True
            )
    elif view.explicit("run.folder"):
        yield Flow(key, run.folder, (view.to("run.folder"),), same=True, always=True)
    else:
        yield Flow(key, "checkpoints", used, "derived", "Trinity adds the project and the name to this path")


TOP: list[Rule] = [
    CustomRule(
        "mode",
        (DialectKey("mode", takes=MODES),),
        ("run.mode",),
        _mode,
        _write_mode,
        why="Supervised training is a mode of Trinity's and an objective here, and one device is a mode too.",
    ),
    Key("project", "run.project", always=True),
    Key("group", "run.group", convert=Emptied("")),
    Key("name", "run.name", always=True),
    CustomRule(
        "checkpoint folder",
        (),
        ("checkpoint.folder",),
        nothing,
        _write_folder,
        "Trinity adds the project and the name to this path",
        why="A folder is cut by the project, group and name that Trinity adds, and the run's folder replaces it if it is null.",
    ),
    Key("checkpoint_root_dir", "run.folder", ABSENT, write_when=lambda view: False),
    Key(
        "continue_from_checkpoint",
        "checkpoint.resume",
        convert=Names(
            {True: "auto", False: "never"}, "Trinity resumes from the run's own folder or starts from scratch"
        ),
    ),
    Key("ray_namespace", "runtime.ray.namespace", convert=Emptied("")),
    Key("model.model_path", "model.path", ABSENT, always=True),
    CustomRule(
        "lengths",
        (
            DialectKey("model.max_model_len"),
            DialectKey("model.max_prompt_tokens"),
            DialectKey("model.max_response_tokens"),
        ),
        (
            "model.max_context_tokens",
            "data.max_prompt_tokens",
            "rollout.max_response_tokens",
            "data.max_sequence_tokens",
        ),
        _read_lengths,
        _write_lengths,
        "max_model_len = prompt + response",
        by_key={
            "model.max_model_len": (
                "data.max_prompt_tokens",
                "data.max_sequence_tokens",
                "model.max_context_tokens",
                "rollout.max_response_tokens",
            ),
            "model.max_prompt_tokens": "data.max_prompt_tokens",
            "model.max_response_tokens": "rollout.max_response_tokens",
        },
        why="Three lengths are one sum, of which a text says any two, and Trinity refuses a sum that is too small.",
    ),
    Key("model.min_response_tokens", "rollout.sampling.min_response_tokens"),
    Key(
        "model.enable_prompt_truncation",
        "data.train_on_truncated_prompts",
        convert=Partly({True: False, False: True}),
        quiet=True,
    ),
    Key("model.repetition_penalty", "rollout.sampling.repetition_penalty"),
    CustomRule(
        "chat template",
        (
            DialectKey("model.custom_chat_template"),
            DialectKey("model.chat_template_path"),
            DialectKey("model.enable_thinking"),
            DialectKey(f"{ROLL}.enable_thinking"),
        ),
        ("model.chat_template", "model.chat_template_args"),
        _read_template,
        _write_template,
        by_key={
            "model.custom_chat_template": "model.chat_template",
            "model.chat_template_path": "model.chat_template",
            "model.enable_thinking": "model.chat_template_args",
            f"{ROLL}.enable_thinking": "model.chat_template_args",
        },
        why="A template is a file or a text by the look of it, and one of its arguments has two separate keys.",
    ),
    Key(
        "model.trust_remote_code",
        "model.trust_remote_code",
        # 0.5.2 trainer/verl/verl_config.py, ActorModel
        also=(DialectKey(f"{MODEL}.trust_remote_code", False),),
    ),
    Key("model.rope_theta", "model.rope.theta"),
    Tree("model.rope_scaling", "model.rope.scaling"),
    CustomRule(
        "LoRA",
        (
            DialectKey("model.lora_configs", takes=list),
            *(DialectKey(f"model.lora_configs.*.{key}", ABSENT) for key in LORA),
        ),
        ("model.lora", *(f"model.lora.{field}" for field in (*LORA.values(), "dropout", "merge_for_rollout"))),
        _read_lora,
        _write_lora,
        by_key={
            "model.lora_configs": "model.lora",
            **{f"model.lora_configs.*.{key}": f"model.lora.{field}" for key, field in LORA.items()},
        },
        why="The first of a list of adapters is a section, and its modules are a pattern that has to be taken apart.",
    ),
    *[
        Dropped(f"model.{name}", "Trinity has no key for this: the model itself decides")
        for name in ("tokenizer", "stage_in_shared_memory", "modality", "freeze", "multi_token_prediction", "attention")
    ],
    # 0.5.2 trainer/verl/verl_config.py, ActorModel; 0.6.0 trainer/verl/config.py, _build_model_config
    Key(f"{MODEL}.external_lib", "model.import_modules", None, Listed(single=True)),
    Tree(f"{MODEL}.override_config", "model.overrides"),
]
