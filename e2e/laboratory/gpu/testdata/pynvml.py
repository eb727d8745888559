# SPDX-License-Identifier: Apache-2.0
"""Stands in for pynvml: one device with two processes, of which one has no known amount."""
from types import SimpleNamespace


def nvmlInit():
    pass


def nvmlDeviceGetHandleByUUID(uuid):
    return uuid


def nvmlDeviceGetMemoryInfo(_):
    return SimpleNamespace(total=1000, used=100, free=900)


def nvmlDeviceGetComputeRunningProcesses(_):
    return [SimpleNamespace(pid=7, usedGpuMemory=100), SimpleNamespace(pid=8, usedGpuMemory=None)]
