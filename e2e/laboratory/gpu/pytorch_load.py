# SPDX-License-Identifier: Apache-2.0
"""The PyTorch half of the GPU suite: reads one command a line, answers each with a line "= key=value ...".

Commands are those of load/ where they mean the same. Every command measures and none judges.
"""
import os
import sys
import time

import torch

MIB = 1 << 20
device = torch.device("cuda")
blocks = []


def used():
    free, total = torch.cuda.mem_get_info()
    return total - free


def many(step, times):
    def run():
        for _ in range(times):
            step()
    return run


def matrices():
    a = torch.randn(8192, 8192, device=device, dtype=torch.float16)
    b = torch.randn_like(a)
    c = torch.empty_like(a)
    return lambda: torch.mm(a, b, out=c)


def training():
    layer = torch.nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True, device=device, dtype=torch.bfloat16)
    optimiser = torch.optim.SGD(layer.parameters(), lr=1e-4)
    x = torch.randn(16, 512, 1024, device=device, dtype=torch.bfloat16)

    def step():
        optimiser.zero_grad()
        layer(x).float().pow(2).mean().backward()
        optimiser.step()
    return step


def decoding():
    x = torch.zeros(4 << 20, device=device)
    return many(lambda: x.add_(1), 400)


# Work by name: how it is made, and how many units of it are queued before the program waits.
KINDS = {"gemm": (matrices, 8), "gemm-sync": (matrices, 1), "train": (training, 1), "decode": (decoding, 1)}
ready = {}


def during(step, units, seconds):
    start, done = time.monotonic(), 0
    while True:
        for _ in range(units):
            step()
        torch.cuda.synchronize()
        done += units
        took = time.monotonic() - start
        if took >= seconds:
            return done, took


def work(kind, settle="300", ms="1000"):
    """work KIND SETTLE MS"""
    if kind not in ready:
        ready[kind] = KINDS[kind][0]()
        for _ in range(3):
            ready[kind]()
        torch.cuda.synchronize()
    step, units = ready[kind], KINDS[kind][1]
    during(step, units, float(settle) / 1000)
    cpu = time.process_time()
    done, took = during(step, units, float(ms) / 1000)
    cpu = (time.process_time() - cpu) / took
    return "kind=%s units=%d seconds=%.4f rate=%.4f cpu=%.3f" % (kind, done, took, done / took, cpu)


def info():
    """info: makes the context"""
    free, total = torch.cuda.mem_get_info()
    return "pid=%d total=%d meminfo_total=%d meminfo_free=%d used=%d version=%s cuda=%s" % (
        os.getpid(), torch.cuda.get_device_properties(0).total_memory, total, free, total - free,
        torch.__version__, torch.version.cuda)


def identity():
    """identity: a product of matrices that comes out equal on one card with one library"""
    torch.manual_seed(7)
    a = torch.randn(1024, 1024, device=device)
    b = torch.randn(1024, 1024, device=device)
    c = (a @ b).double()
    return "name=%s sum=%.17g first=%.17g last=%.17g" % (
        torch.cuda.get_device_name(0).replace(" ", "_"), float(c.sum()), float(c[0, 0]), float(c[-1, -1]))


def fill(mib="32"):
    """fill MIB: blocks of this size until the exception that PyTorch promises"""
    caught = "none"
    try:
        for _ in range(100000):
            blocks.append(torch.empty(int(mib) * MIB, dtype=torch.uint8, device=device))
    except torch.OutOfMemoryError as e:
        caught = type(e).__name__
    except Exception as e:  # any other is what the suite is there to find
        caught = type(e).__name__
    return "blocks=%d bytes=%d caught=%s used=%d reserved=%d backend=%s" % (
        len(blocks), len(blocks) * int(mib) * MIB, caught, used(), torch.cuda.memory_reserved(),
        torch.cuda.memory.get_allocator_backend())


def recover():
    """recover: gives all back and computes something"""
    blocks.clear()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    x = torch.ones(1024, 1024, device=device)
    return "sum=%.0f used=%d" % (float((x @ x).sum()), used())


def touch(what):
    """touch context|cublas|cudnn: makes the program hold it; what PyTorch itself holds for data afterwards"""
    if what == "context":
        torch.zeros(1, device=device)
    elif what == "cublas":
        x = torch.randn(512, 512, device=device, dtype=torch.float16)
        (x @ x).sum().item()
    elif what == "cudnn":
        x = torch.randn(8, 16, 64, 64, device=device)
        torch.nn.functional.conv2d(x, torch.randn(16, 16, 3, 3, device=device)).sum().item()
    torch.cuda.synchronize()
    return "reserved=%d" % torch.cuda.memory_reserved()


def view(uuid):
    """view UUID: what NVML says to a Python program; makes no context"""
    import pynvml
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    rows = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    return "total=%d used=%d free=%d processes=%s" % (
        memory.total, memory.used, memory.free, ",".join("%d:%d" % (r.pid, r.usedGpuMemory or 0) for r in rows))


COMMANDS = {f.__name__: f for f in (work, info, identity, fill, recover, touch, view)}

for line in sys.stdin:
    words = line.split()
    if not words:
        continue
    try:
        answer = COMMANDS[words[0]](*words[1:])
    except Exception as e:  # told to the suite, which ends the row with it
        answer = "error what=%s:%s" % (type(e).__name__, "_".join(str(e).split())[:300])
    print("= " + answer, flush=True)
