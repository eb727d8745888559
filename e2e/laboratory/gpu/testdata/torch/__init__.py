# SPDX-License-Identifier: Apache-2.0
"""Stands in for PyTorch where there is none: as much of it as pytorch_load.py uses, on a device of 256 MiB."""
import time
import types

float16 = bfloat16 = uint8 = None
__version__, version = "0", types.SimpleNamespace(cuda="0")
TOTAL = 256 << 20
taken = 0


class OutOfMemoryError(RuntimeError):
    pass


class Tensor:
    """Computes nothing; every result is 1 << 30, which is what the sum of recover() comes to."""

    def __init__(self, size=0):
        global taken
        self.size = 0
        if taken + size > TOTAL:
            raise OutOfMemoryError("out of memory")
        taken, self.size = taken + size, size

    def __del__(self):
        global taken
        taken -= self.size

    def itself(self, *_):
        return self

    sum = float = double = pow = mean = backward = add_ = __matmul__ = __getitem__ = itself

    def item(self):
        return 1.0

    def __float__(self):
        return float(1 << 30)


def device(name):
    return name


def empty(size, **_):
    return Tensor(size)


def tensor(*_, **__):
    return Tensor()


randn = randn_like = empty_like = zeros = ones = tensor


def mm(a, b, out):
    time.sleep(0.0001)


def manual_seed(_):
    pass


class Layer:
    def __init__(self, *_, **__):
        pass

    def __call__(self, x):
        return x

    def parameters(self):
        return []

    zero_grad = step = parameters


nn = types.SimpleNamespace(TransformerEncoderLayer=Layer, functional=types.SimpleNamespace(conv2d=tensor))
optim = types.SimpleNamespace(SGD=lambda parameters, lr: Layer())
cuda = types.SimpleNamespace(
    mem_get_info=lambda: (TOTAL - taken, TOTAL),
    get_device_properties=lambda _: types.SimpleNamespace(total_memory=TOTAL),
    get_device_name=lambda _: "Stand-in",
    synchronize=lambda: None,
    empty_cache=lambda: None,
    memory_reserved=lambda: taken,
    memory=types.SimpleNamespace(get_allocator_backend=lambda: "native"),
)
