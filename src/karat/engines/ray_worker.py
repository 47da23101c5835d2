"""What a Ray worker runs: one job, in a free slot of its node.

In and out are msgpack bytes. What the job's commands see is the node's own environment, that of its raylet: neither the
driver's, nor what Ray sets for its workers (OMP_NUM_THREADS, PYTHONPATH), which would change what is measured.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec

from karat.engines.job import Job, JobResult
from karat.engines.runner import free_slot, run_job
from karat.findings import KaratError
from karat.system.locks import own_temporary_folder

AREAS = "KARAT_AREAS"
"""A node's environment variable: where its areas are, instead of the folder for temporary files."""
_OF_RAY = {"RAY_AUTH_TOKEN", "RAY_CLIENT_MODE", "RAY_LD_PRELOAD_ON_WORKERS"}
_OF_A_WORKER = {"OMP_NUM_THREADS", "PYTHONBREAKPOINT", "PYTHONPATH", "RAY_JOB_ID", "RAY_RAYLET_PID", "SPT_NOENV"}


def run_on_worker(packed: bytes, hunt: str) -> bytes:
    """Run a job here; `hunt` names the folder whose areas may be used again."""
    import ray

    job = msgspec.msgpack.decode(packed, type=Job)
    started, node = time.time(), str(ray.get_runtime_context().get_node_id())[:8]
    gpus = tuple(map(str, ray.get_gpu_ids())) if job.resources.gpus > 0 else ()
    try:
        areas = Path(os.environ.get(AREAS) or own_temporary_folder())
        slot = free_slot(areas / hunt, gpus=gpus, node=node, env=_environment())
        try:
            result = run_job(job, slot, lambda: False)
        finally:
            os.close(slot.held[0])
    except (OSError, KaratError) as error:
        # A full disk, a folder that may not be written: another node may do better.
        result = JobResult(key=job.key, started=started, where=node, lost=str(error))
    return msgspec.msgpack.encode(result)


def _environment() -> dict[str, str]:
    """The node's own; where that cannot be read, the worker's without what is only for workers."""
    env = {name: value for name, value in os.environ.items() if name not in _OF_A_WORKER}
    try:
        raylet = Path(f"/proc/{os.getppid()}/environ").read_bytes()
    except OSError:
        raylet = b""
    if raylet:
        pairs = (os.fsdecode(entry).partition("=") for entry in raylet.split(b"\0") if entry)
        env = {name: value for name, _, value in pairs}
    # Ray hides the GPUs from those who did not ask for any.
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        env["CUDA_VISIBLE_DEVICES"] = os.environ["CUDA_VISIBLE_DEVICES"]
    return {name: value for name, value in env.items() if name not in _OF_RAY}
