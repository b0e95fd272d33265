"""An address is a cluster that this machine belongs to, a job server, or a mistake that is told."""

from __future__ import annotations

import pytest

from rlctl.cluster.address import address_of
from rlctl.common.errors import UsageError


@pytest.mark.parametrize("text", ["auto", "head:6379", "10.0.0.1:6379", "[fd00::1]:6379"])
def test_a_cluster_of_this_machine_is_joined(text: str) -> None:
    assert address_of(text).jobs is None


@pytest.mark.parametrize(
    ("text", "jobs"),
    [
        ("http://head:8265", "http://head:8265"),
        ("https://ray.example.com/", "https://ray.example.com"),
        ("ray://head:10001", "http://head:8265"),
        ("ray://[fd00::1]:10001", "http://[fd00::1]:8265"),
    ],
)
def test_another_cluster_is_reached_by_its_job_server(text: str, jobs: str) -> None:
    assert address_of(text).jobs == jobs
    assert bool(address_of(text).note) is text.startswith("ray:")


@pytest.mark.parametrize("text", ["", "local", "head", "ray://", "ftp://head:1", "http://", "http://[", "a b:1"])
def test_anything_else_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="not the address of a Ray cluster"):
        address_of(text)
