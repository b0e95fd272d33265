"""Where ROLL's roles run: device lists to the simplest layout that says the same, and back."""

from __future__ import annotations

import pytest

from rlctl.adapters.roll.devices import parse_devices
from rlctl.common.report import Bucket
from rlctl.planning import arithmetic

from .files import bucket, entry, read, refused, written


def _devices(train: str, infer: str, reference: str | None = None, nodes_of: int = 8) -> dict[str, object]:
    return {
        "actor_train__device_mapping": train,
        "actor_infer__device_mapping": infer,
        "reference__device_mapping": reference or train,
        "num_gpus_per_node": nodes_of,
    }


@pytest.mark.parametrize(
    ("train", "infer", "layout", "nodes", "each"),
    [
        ("list(range(0,8))", "list(range(0,8))", "colocated", 1, 8),
        ("list(range(0,4))", "list(range(0,4))", "colocated", 1, 4),
        ("list(range(0,32))", "list(range(0,32))", "colocated", 4, 8),
        ("list(range(0,8))", "list(range(8,16))", "split", 2, 8),
        ("list(range(0,6))", "list(range(6,8))", "split", 1, 8),
        ("list(range(8,16))", "list(range(0,8))", "explicit", 2, 8),
        ("list(range(0,16))", "list(range(0,12))", "explicit", 2, 8),
        ("list(range(0,12))", "list(range(0,12))", "explicit", 2, 8),
    ],
)
def test_devices_are_read_as_the_simplest_layout(train: str, infer: str, layout: str, nodes: int, each: int) -> None:
    config, _ = read(**_devices(train, infer))
    placement = config.placement
    assert (placement.layout, placement.nodes, placement.devices_per_node) == (layout, nodes, each)
    assert arithmetic.train_devices(config) == len(parse_devices(train))
    assert arithmetic.rollout_devices(config) == len(parse_devices(infer))


def test_a_reference_with_devices_of_its_own_is_listed() -> None:
    config, _ = read(**_devices("list(range(0,8))", "list(range(8,16))", "list(range(8,16))"))
    assert config.placement.layout == "explicit"
    assert config.placement.roles["reference"].devices == tuple(range(8, 16))


def test_a_reward_model_keeps_its_devices() -> None:
    judge = {"worker_cls": "a.B", "tag_included": ["x"], "device_mapping": "[6, 7]"}
    config, _ = read(**_devices("list(range(0,8))", "list(range(0,6))"), rewards={"judge": judge})
    assert config.placement.roles["reward"].devices == (6, 7)


def test_the_critic_counts_only_where_there_is_one() -> None:
    away = {"critic__device_mapping": "list(range(8,16))", "critic__strategy_args__strategy_name": "fsdp2_train"}
    without, _ = read(**away)
    there, _ = read(**away, adv_estimator="gae")
    assert without.placement.layout == "colocated"
    assert there.placement.roles["critic"].devices == tuple(range(8, 16))


def test_what_roll_counts_itself_is_dead() -> None:
    _, report = read(num_nodes=3, actor_infer__num_gpus_per_worker=4)
    assert bucket(report, "num_nodes") is Bucket.DEAD
    assert bucket(report, "actor_infer.num_gpus_per_worker") is Bucket.DEAD


@pytest.mark.parametrize(
    ("mapping", "says"),
    [("list(range(0,8)", "')' is missing"), ([0, 1], "is a YAML list"), ("range(0, x)", "at character 10: 'x'")],
)
def test_a_mapping_that_cannot_be_read_is_named(mapping: object, says: str) -> None:
    message = refused(actor_train__device_mapping=mapping)
    assert "actor_train.device_mapping" in message
    assert says in message


@pytest.mark.parametrize(
    ("keys", "train", "infer"),
    [
        ({}, "list(range(0,8))", "list(range(0,8))"),
        ({"placement__nodes": 2}, "list(range(0,16))", "list(range(0,16))"),
        ({"placement__layout": "split", "placement__rollout_devices": 4}, "list(range(0,4))", "list(range(4,8))"),
        (
            {
                "placement__layout": "explicit",
                "placement__roles": {"policy": {"devices": [0, 1, 2, 3]}, "rollout": {"devices": [4, 6]}},
            },
            "list(range(0,4))",
            "[4, 6]",
        ),
    ],
)
def test_layouts_are_written_as_device_lists(keys: dict[str, object], train: str, infer: str) -> None:
    values, _ = written(**keys)
    assert values["actor_train"]["device_mapping"] == train
    assert values["actor_infer"]["device_mapping"] == infer
    assert values["num_gpus_per_node"] == 8


def test_a_reference_is_written_only_where_something_is_measured_against_it() -> None:
    without, _ = written()
    there, _ = written(algorithm__kl_in_loss={"coefficient": 0.001})
    assert "reference" not in without
    assert there["reference"]["device_mapping"] == "list(range(0,8))"
    assert there["reference"]["strategy_args"]["strategy_name"] == "fsdp2_infer"


def test_engines_that_do_not_divide_the_devices_are_refused_with_the_arithmetic() -> None:
    _, report = written(rollout__parallel__tensor_parallel_size=3)
    note = entry(report, "rollout.parallel.tensor_parallel_size").note
    assert "8 / 3 = 2.66667" in note
    assert "6 or 9" in note


def test_fewer_engines_than_fit_cannot_be_said() -> None:
    _, report = written(rollout__parallel__replicas=3)
    assert bucket(report, "rollout.parallel.replicas") is Bucket.UNSUPPORTED


def test_supervised_training_gets_devices_for_a_replica() -> None:
    """A launcher, not the config, says how many devices verl's SFT has: ROLL refuses fewer than a replica takes."""
    engine = {"type": "megatron", "tensor_parallel_size": 2, "pipeline_parallel_size": 4}
    objective, batch = {"type": "sft"}, {"prompts_per_step": 96}
    values, report = written(
        algorithm__objective=objective, train__engine=engine, placement__devices_per_node=1, batch=batch
    )
    train = values["sft_train"]
    assert train["device_mapping"] == "list(range(0,8))"
    rows = train["training_args"]["per_device_train_batch_size"] * train["training_args"]["gradient_accumulation_steps"]
    assert rows == 96, "one replica takes the whole batch"
    assert bucket(report, "batch.prompts_per_step") is not Bucket.UNSUPPORTED
    assert values["num_gpus_per_node"] == 8


def test_a_router_replay_that_roll_refuses_is_not_written() -> None:
    values, report = written(algorithm__router_replay="recompute")
    assert "router_replay" not in values["actor_train"]
    assert bucket(report, "algorithm.router_replay") is Bucket.UNSUPPORTED


def test_a_mini_batch_is_not_larger_than_a_step() -> None:
    values, report = written(batch__mini_batch_responses=1024)
    arguments = values["actor_train"]["training_args"]
    assert arguments["per_device_train_batch_size"] * arguments["gradient_accumulation_steps"] * 8 == 512
    note = entry(report, "batch.mini_batch_responses").note
    assert "512" in note
    assert "1024" in note
