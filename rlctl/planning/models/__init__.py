"""What is known of a model without its weights: its shape, from a local ``config.json`` or a table of hub names. No torch."""

from rlctl.planning.models.families import FAMILIES, shape_of
from rlctl.planning.models.lookup import context_limit, model_config, read_shape, shape_given, why_unknown
from rlctl.planning.models.shape import Layer, ModelShape

__all__ = [
    "FAMILIES",
    "Layer",
    "ModelShape",
    "context_limit",
    "model_config",
    "read_shape",
    "shape_given",
    "shape_of",
    "why_unknown",
]
