"""Plans made by hand, for tests of what shows them."""

from __future__ import annotations

from shardwise.planner.result import Advice, Buffer, Interval, Plan, Schedule, Task, Traffic

FILE = "/home/u/model/layers.py"
GIB = 2**30


def layer_tasks(n: int = 1) -> tuple[Task, ...]:
    """The tasks of `n` layers, one after another: a gather, a product beside it, a fused group."""
    tasks: list[Task] = []
    for i in range(n):
        t = 0.03 * i
        tasks += [
            Task("all_gather", "collective", "ici", t, 0.012, sent_bytes=3e8, axes=("fsdp",), bound="link",
                 value="bf16[8192,1024]", cause="dot_general", source=(FILE, 88), pattern="gather"),
            Task("dot_general", "product", "compute", t + 0.004, 0.02, flops=9e12, hbm_bytes=4e8, bound="flops",
                 value="bf16[4,2048,1024]", source=(FILE, 88), critical=True),
            Task("fused: mul add tanh", "fused", "compute", t + 0.024, 0.006, flops=1e9, hbm_bytes=6e8, bound="memory",
                 value="bf16[4,2048,1024]", source=(FILE, 91), critical=True),
        ]  # fmt: skip
    return tuple(tasks)


def plan_of(layers: int = 80, *, scanned: bool = True, capacity: float = 95.0, name: str = "train_step") -> Plan:
    """A training step of `layers` layers."""
    per_layer = 0.03
    if scanned:
        body = Schedule(layer_tasks(), per_layer)
        loop = Task("scan", "loop", "compute", 0.0, layers * per_layer, trips=layers, body=body, critical=True)
        tasks: tuple[Task, ...] = (loop,)
    else:
        tasks = layer_tasks(layers)
    end = layers * per_layer
    update = Task(
        "fused: mul sub", "fused", "compute", end, 0.1, 1e10, 4e10, bound="memory", source=(FILE, 120), critical=True
    )
    buffers = (
        Buffer("params['layers']['w']", "argument", 30 * GIB, "bf16[80,8192,1024]",
               ((), ("fsdp",), ("model",)), (80, 65536, 8192), (FILE, 20)),
        Buffer("opt_state[0].mu['layers']['w']", "argument", 20 * GIB, "f32[80,8192,1024]",
               ((), ("fsdp", "data"), ()), (80, 65536, 8192), (FILE, 21)),
        *[Buffer("tanh", "saved", GIB // 8, "bf16[4,2048,1024]", (), (), (FILE, 91)) for _ in range(layers)],
        Buffer("dot_general", "temporary", 2 * GIB, "f32[4,2048,8192]", (("data",),), (64, 2048, 8192), (FILE, 99)),
    )  # fmt: skip
    peak = sum(b.nbytes for b in buffers)
    traffic = (
        Traffic("all_gather", ("fsdp",), 24 * 10**9, layers, "bf16[65536,1024]", "dot_general", True, (FILE, 88), "ici", layers * 0.012),
        Traffic("all_reduce", ("data",), 10**9, 1, "f32[80,8192,1024]", "", False, (FILE, 110), "dcn", 0.05),
        Traffic("permute", ("model",), 10**7, None, "f32[4,2048]", "slice", True, None, "ici", 0.0),
    )  # fmt: skip
    return Plan(
        name=name, machine="v5p-256", chip="TPU v5p", devices=128, mesh={"data": 2, "fsdp": 8, "model": 8},
        capacity=int(capacity * GIB), arguments=50 * GIB, results=50 * GIB, aliased=50 * GIB, temporaries=peak - 50 * GIB,
        peak=peak, buffers=buffers, profile=((0.0, 50 * GIB), (end / 2, peak), (end, 52 * GIB), (end + 0.1, 50 * GIB)),
        schedule=Schedule((*tasks, update), end + 0.1), seconds=Interval(2.2, end + 0.1, 3.1), flops=7.2e14, model_flops=5.4e14,
        peak_flops=4.59e14, shares={"product": 1.6, "memory": 0.58, "collective:fsdp": 0.32}, traffic=traffic,
        advice=(Advice("Shard params['embed'] over 'fsdp'", "saves 3.2 GiB at the peak, 12 ms more", (FILE, 15), -0.012, 3 * GIB),),
        notes=("The trips of the while loop at layers.py:140 are not known: it counts once.",),
        calls=20, planning_seconds=0.8,
    )  # fmt: skip
