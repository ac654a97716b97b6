"""A processor as verl's platform, and a rollout by Transformers: loaded in every process by
`VERL_USE_EXTERNAL_MODULES`.

Nothing of verl is changed but what it keeps in its own registries, and gloo stands where it asks
for a backend of a GPU.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed

os.environ.setdefault(
    "VERL_ENGINE_DEVICE", "cuda"
)  # its engine by FSDP is registered for this name only

import verl.workers.rollout.base as rollouts
import verl.workers.rollout.replica as replicas
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry, set_platform


def _answers(value: Any) -> Callable[..., Any]:
    """Return a function that takes anything and answers one thing."""
    return lambda *_, **__: value


_LACKING = {
    **dict.fromkeys(("empty_cache", "reset_peak_memory_stats", "ipc_collect"), _answers(None)),
    **dict.fromkeys(
        ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved"),
        _answers(0),
    ),
    **dict.fromkeys(("manual_seed", "manual_seed_all"), torch.manual_seed),
    "mem_get_info": _answers((1 << 33, 1 << 34)),
    "get_device_name": _answers("CPU"),
    "get_rng_state": torch.get_rng_state,
    "set_rng_state": torch.set_rng_state,
}
for _name, _function in _LACKING.items():
    if not hasattr(torch.cpu, _name):
        setattr(torch.cpu, _name, _function)


@PlatformRegistry.register(platform="cpu")
class Processor(PlatformBase):
    """A processor that answers what verl asks of a GPU."""

    device_name = vendor_name = "cpu"
    device_module = torch.cpu
    is_available, is_ipc_supported = _answers(True), _answers(False)  # noqa: FBT003
    current_device, device_count = _answers("cpu"), _answers(1)
    set_device = synchronize = empty_cache = set_allocator_settings = profiler_start = (
        profiler_stop
    ) = cudart = _answers(None)
    get_device_capability = _answers((None, None))
    communication_backend_name, visible_devices_envvar = (
        _answers("gloo"),
        _answers("CUDA_VISIBLE_DEVICES"),
    )
    ray_resource_name, ray_noset_envvars = (
        _answers("GPU"),
        _answers([]),
    )  # a logical one: ray.init(num_gpus=1)

    def manual_seed(self, seed: int) -> None:
        """Seed the generator."""
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    @contextlib.contextmanager
    def nvtx_range(self, _message: str) -> Iterator[None]:
        """Mark nothing."""
        yield


set_platform(Processor())
torch.Tensor.pin_memory = lambda tensor, *_: tensor  # type: ignore[method-assign,assignment]  # a reference policy is offloaded to memory that no GPU reads
_begin = torch.distributed.init_process_group


def _with_gloo(backend: Any = None, *given: Any, **named: Any) -> Any:
    """Begin a group of processes; a backend of nothing but gloo's names is gloo."""
    only = isinstance(backend, str) and not backend.replace("cpu:gloo", "").strip(",")
    return _begin("gloo" if only else backend, *given, **named)


torch.distributed.init_process_group = _with_gloo


def _replica() -> Any:
    """Return the class of the rollout's replicas."""
    from cpu_rollout import Replica

    return Replica


rollouts._ROLLOUT_REGISTRY[("hfcpu", "async")] = "cpu_rollout.Adapter"
replicas.RolloutReplicaRegistry.register("hfcpu", _replica)
