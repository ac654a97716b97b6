"""verl's rollout by Transformers' `generate`: a server of Ray that samples, a replica that
starts it, and what brings it the weights.
"""

from __future__ import annotations

import asyncio
import os
from operator import itemgetter
from typing import Any

import ray
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutReplica, TokenOutput


async def _nothing(*_: Any, **__: Any) -> None:
    """Do nothing: a processor has no memory to hand back."""


class Server:
    """Samples completions, all requests of a third of a second at once."""

    def __init__(self, config: Any, model_config: Any) -> None:
        torch.set_num_threads(2)
        path = model_config.path if hasattr(model_config, "path") else model_config["path"]
        self._length, self._step, self._calls = int(config.response_length), 0, 0
        self._model = AutoModelForCausalLM.from_pretrained(
            path, dtype=torch.float32, attn_implementation="sdpa"
        ).eval()
        self._end = AutoTokenizer.from_pretrained(path).eos_token_id
        self._queue: list[tuple[list[int], dict[str, Any], asyncio.Future[Any]]] = []
        self._task: asyncio.Task[None] | None = None

    async def generate(
        self,
        prompt_ids: Any,
        sampling_params: Any,
        request_id: Any,  # noqa: ARG002
        **_: Any,
    ) -> Any:
        """Return the completion of one prompt."""
        future = asyncio.get_running_loop().create_future()
        self._queue.append((list(prompt_ids), dict(sampling_params), future))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._drain())
        return await future

    async def _drain(self) -> None:
        """Sample what waits."""
        await asyncio.sleep(0.3)
        while self._queue:
            batch, self._queue = sorted(self._queue[:64], key=itemgetter(0)), self._queue[64:]
            try:
                answers = await asyncio.to_thread(
                    self._sample, [entry[0] for entry in batch], batch[0][1]
                )
                for (_, _, future), answer in zip(batch, answers, strict=True):
                    future.set_result(answer)
            except Exception as error:  # noqa: BLE001  whoever waits is told
                for _, _, future in batch:
                    if not future.done():
                        future.set_exception(error)

    @torch.no_grad()
    def _sample(self, prompts: list[list[int]], sampling: dict[str, Any]) -> list[Any]:
        """Return the completions of some prompts, with the log-probabilities of their tokens."""
        self._calls += 1
        torch.manual_seed(self._calls)
        width, end = max(map(len, prompts)), self._end
        ids = torch.tensor([[end] * (width - len(prompt)) + prompt for prompt in prompts])
        mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
        temperature = float(sampling.get("temperature", 1.0))
        how = {
            "do_sample": True,
            "temperature": temperature,
            "top_p": float(sampling.get("top_p", 1.0)),
            "top_k": 0,
        }
        limit = int(sampling.get("max_tokens") or sampling.get("max_new_tokens") or self._length)
        out = self._model.generate(
            input_ids=ids,
            attention_mask=mask,
            max_new_tokens=limit,
            pad_token_id=end,
            eos_token_id=end,
            return_dict_in_generate=True,
            output_logits=True,
            **(how if temperature > 0 else {"do_sample": False}),
        )
        logits = torch.stack(out.logits, 1).float() / (temperature or 1.0)
        new = out.sequences[:, width:]
        logprob = torch.log_softmax(logits, -1).gather(-1, new.unsqueeze(-1)).squeeze(-1)
        answers = []
        for row, logprobs in zip(new.tolist(), logprob.tolist(), strict=True):
            length = row.index(end) + 1 if end in row else len(row)
            more = {"global_steps": self._step}
            answers.append(
                TokenOutput(
                    token_ids=row[:length],
                    log_probs=logprobs[:length],
                    stop_reason="completed",
                    num_preempted=0,
                    extra_fields=more,
                )
            )
        return answers

    async def load_weights(self, weights: list[tuple[str, Any]], step: int | None) -> None:
        """Take the weights of the policy."""
        own = self._model.state_dict()
        for name, value in weights:
            own[name].copy_(value.to(own[name].dtype))
        self._step = self._step if step is None else step

    wake_up = sleep = clear_kv_cache = release_kv_cache = resume_kv_cache = _nothing
    abort_all_requests = resume_generation = start_profile = stop_profile = _nothing


class Replica(RolloutReplica):
    """Starts the server."""

    async def launch_servers(self) -> None:
        """Start the one server."""
        options = {
            "name": f"hfcpu_server_{self.replica_rank}_0",
            "max_concurrency": 1000,
            "num_cpus": 1,
        }
        server = ray.remote(Server).options(**options).remote(self.config, self.model_config)
        self.servers, self._server_handle, self._server_address = [server], server, "127.0.0.1:1"


class Adapter(BaseRollout):
    """Brings the weights of the policy to the server."""

    def __init__(
        self, config: Any, model_config: Any, device_mesh: Any, replica_rank: int = -1
    ) -> None:
        super().__init__(config, model_config, device_mesh)
        self.replica_rank = int(os.environ.get("RANK", "0")) if replica_rank == -1 else replica_rank
        self.is_leader_rank, self.sleep_level = True, 2

    resume = release = _nothing

    async def update_weights(self, weights: Any, global_steps: int | None = None, **_: Any) -> None:
        """Send all weights."""
        whole = (
            (name, value.full_tensor() if hasattr(value, "full_tensor") else value)
            for name, value in weights
        )
        sent = [(name, value.detach().cpu().float().clone()) for name, value in whole]
        await ray.get_actor(f"hfcpu_server_{self.replica_rank}_0").load_weights.remote(
            sent, global_steps
        )
