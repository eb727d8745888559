# SPDX-License-Identifier: Apache-2.0
"""Stands in for PyTorch where there is none: as much of it as the suite's programs use, on a device of 256 MiB."""
import contextlib
import time
import types

float16 = bfloat16 = float32 = uint8 = long = None
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

    def itself(self, *_, **__):
        return self

    sum = float = double = pow = mean = backward = add_ = __matmul__ = __getitem__ = itself
    view = permute = reshape = transpose = repeat = to = cos = sin = argmax = itself
    normal_ = copy_ = fill_ = index_copy_ = itself
    __add__ = __mul__ = __truediv__ = __neg__ = __rpow__ = __le__ = itself

    def chunk(self, parts, _):
        return [self] * parts

    def split(self, sizes, _):
        return [self] * len(sizes)

    def item(self):
        return 1.0

    def __float__(self):
        return float(1 << 30)


def device(name):
    return name


def empty(*size, **_):
    return Tensor(size[0] if len(size) == 1 else 0)


def tensor(*_, **__):
    return Tensor()


randn = randn_like = empty_like = zeros = ones = full = arange = randint = where = cat = tensor
inference_mode = contextlib.nullcontext


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


class Timer:
    """An event, a stream and a graph: work takes no time on this device, and a replay a tenth of a millisecond."""

    def __init__(self, **_):
        pass

    def ignore(self, *_):
        pass

    record = synchronize = wait_stream = ignore

    def elapsed_time(self, _):
        return 0.1

    def replay(self):
        time.sleep(0.0001)


nn = types.SimpleNamespace(TransformerEncoderLayer=Layer, functional=types.SimpleNamespace(
    conv2d=tensor, linear=tensor, embedding=tensor, rms_norm=tensor, silu=tensor, scaled_dot_product_attention=tensor))
optim = types.SimpleNamespace(SGD=lambda parameters, lr: Layer())
cuda = types.SimpleNamespace(
    mem_get_info=lambda: (TOTAL - taken, TOTAL),
    get_device_properties=lambda _: types.SimpleNamespace(total_memory=TOTAL),
    get_device_name=lambda _: "Stand-in",
    synchronize=lambda: None,
    Event=Timer, Stream=Timer, CUDAGraph=Timer, current_stream=Timer,
    stream=contextlib.nullcontext, graph=contextlib.nullcontext,
    empty_cache=lambda: None,
    memory_reserved=lambda: taken,
    memory=types.SimpleNamespace(get_allocator_backend=lambda: "native"),
)
