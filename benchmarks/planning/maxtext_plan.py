"""Plan the train script of MaxText, unmodified, with its own configurations: `python maxtext_plan.py --checkout DIR --python PYTHON`.

PYTHON is an interpreter with what MaxText needs besides JAX, and with shardwise. Writes `maxtext.json`, which the section 'maxtext' shows.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

RECORD = Path(__file__).parent / "maxtext.json"
# Arguments that all runs have: no services, no files, a few steps, as the scripts in `configs/tpu` set them.
COMMON = (
    "run_name=planned", "hardware=tpu", "enable_goodput_recording=False", "monitor_goodput=False", "skip_jax_distributed_system=True",
    "enable_tensorboard=False", "log_config=False", "steps=3", "enable_checkpointing=false", "dataset_type=synthetic",
    "reuse_example_batch=1", "attention=flash", "max_target_length=2048", "use_iota_embed=true",
)  # fmt: skip
V5P, FULL = ("remat_policy=minimal", "ici_fsdp_parallelism=-1"), ("remat_policy=full",)
# By name the machine and what `configs/tpu/v5p/*.sh` and `v5e/*.sh` pass.
RUNS = {
    "MaxText 32B on 64 v5p": ("v5p-128", ("per_device_batch_size=6", "global_parameter_scale=32", *V5P, "ici_tensor_parallelism=4")),
    "MaxText 64B on 64 v5p": ("v5p-128", ("per_device_batch_size=3", "global_parameter_scale=64", *V5P, "ici_tensor_parallelism=4")),
    "MaxText 128B on 256 v5p": ("v5p-512", ("per_device_batch_size=1", "global_parameter_scale=128", *V5P, "ici_tensor_parallelism=8")),
    "MaxText 16B on 256 v5e": ("v5e-256", ("per_device_batch_size=6", "global_parameter_scale=16", *FULL)),
    "MaxText 32B on 512 v5e": ("2x-v5e-256", ("per_device_batch_size=4", "global_parameter_scale=32", *FULL, "dcn_data_parallelism=2")),
    "MaxText 64B on 512 v5e": ("2x-v5e-256", ("per_device_batch_size=2", "global_parameter_scale=64", *FULL, "dcn_data_parallelism=2")),
}  # fmt: skip


def planned(checkout: Path, python: str, machine: str, arguments: tuple[str, ...]) -> dict[str, Any]:
    """What `shardwise plan` says of the script."""
    source = Path(__file__).parents[2] / "src"
    paths = f"{checkout / 'src'}{os.pathsep}{source}"
    environment = {
        **os.environ,
        "PYTHONPATH": paths,
        "DECOUPLE_GCLOUD": "TRUE",
        "HF_HUB_OFFLINE": "1",
        "JAX_PLATFORMS": "cpu",
    }
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, "plan.json")
        command = [
            python,
            "-m",
            "shardwise",
            "plan",
            "--on",
            machine,
            "--json",
            str(target),
            "-m",
            "maxtext.trainers.pre_train.train",
        ]
        command += ["src/maxtext/configs/base.yml", f"base_output_directory={folder}", *COMMON, *arguments]
        begin = time.perf_counter()
        subprocess.run(command, cwd=checkout, env=environment, check=True, capture_output=True)
        took = time.perf_counter() - begin
        plan = json.loads(target.read_text())
    return {
        "machine": machine,
        "arguments": list(arguments),
        "seconds": plan["seconds"]["likely"],
        "peak": plan["peak"],
        "capacity": plan["capacity"],
        "shares": plan["shares"],
        "took": took,
    }


def main() -> None:
    """Plan all runs, or those named, and write the record."""
    parser = argparse.ArgumentParser(description="Plan MaxText's train script.")
    parser.add_argument("--checkout", type=Path, required=True, help="a checkout of MaxText")
    parser.add_argument("--python", required=True, help="an interpreter with MaxText's packages")
    parser.add_argument("names", nargs="*", help="runs; all by default")
    given = parser.parse_args()
    record: dict[str, Any] = json.loads(RECORD.read_text()) if RECORD.exists() else {"runs": {}}
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=given.checkout, capture_output=True, text=True, check=True
    )
    record |= {"commit": commit.stdout.strip(), "date": f"{datetime.date.today()}"}
    for name in given.names or RUNS:
        record["runs"][name] = planned(given.checkout, given.python, *RUNS[name])
        RECORD.write_text(json.dumps(record, indent=1) + "\n")
        print(name, record["runs"][name])


if __name__ == "__main__":
    main()
