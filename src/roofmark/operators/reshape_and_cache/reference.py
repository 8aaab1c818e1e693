"""Rows of keys and values scattered to the slots of a paged cache, in place."""

from torch import Tensor, nn


class Model(nn.Module):
    """Token t's key and value go to slot slot_mapping[t] of the caches; where that is -1, nowhere."""

    def forward(
        self, key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slot_mapping: Tensor
    ) -> tuple[Tensor, Tensor]:
        """key and value [T, h, d], caches [NB, 16, h, d] bfloat16, slot_mapping [T] int64; to both caches."""
        kept = slot_mapping >= 0
        slots = slot_mapping[kept]
        key_cache.flatten(0, 1)[slots] = key[kept]
        value_cache.flatten(0, 1)[slots] = value[kept]
        return key_cache, value_cache
