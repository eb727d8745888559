# SPDX-License-Identifier: Apache-2.0
"""Decodes tokens with random weights in the shapes of an 8B model: the GPU suite's stand-in for a model server.

Reads one command a line: info; prepare MODE BATCH; start MODE BATCH SETTLE, which decodes until stop comes, counts
nothing in the first SETTLE ms, and at least one token. The answer to each, with start that of stop, is a line "= " and
JSON. In mode eager a token is some hundreds of launches, in mode graph one launch of a CUDA graph. Measures, and judges
nothing. --tiny --cpu runs a small model without a GPU.
"""
import collections
import json
import os
import select
import sys
import time

import torch

F = torch.nn.functional

Shape = collections.namedtuple("Shape", "layers hidden heads kv_heads mlp vocab prompt tokens")
LARGE = Shape(layers=32, hidden=4096, heads=32, kv_heads=8, mlp=14336, vocab=128256, prompt=512, tokens=128)
TINY = Shape(layers=2, hidden=64, heads=4, kv_heads=2, mlp=128, vocab=256, prompt=16, tokens=8)
BATCHES = (1, 8, 32)

Layer = collections.namedtuple("Layer", "norm1 qkv out norm2 gate_up down keys values")


class Decoder:
    """The model, with a cache of keys and values in which every sequence has a slot for each of its tokens."""

    def __init__(self, shape, device, dtype):
        self.shape, self.device, self.head = shape, device, shape.hidden // shape.heads
        self.group = shape.heads // shape.kv_heads
        slots = -(-(shape.prompt + shape.tokens) // 64) * 64  # kernels for masks want them aligned

        def weight(*size):
            return torch.empty(*size, device=device, dtype=dtype).normal_(0, 0.02)

        def ones():
            return torch.ones(shape.hidden, device=device, dtype=dtype)

        def cache():
            return torch.zeros(max(BATCHES), shape.kv_heads, slots, self.head, device=device, dtype=dtype)

        self.sizes = [shape.heads * self.head, shape.kv_heads * self.head, shape.kv_heads * self.head]
        self.embedding = weight(shape.vocab, shape.hidden)  # and LM head
        self.layers = [Layer(ones(), weight(sum(self.sizes), shape.hidden), weight(shape.hidden, shape.hidden), ones(),
                             weight(2 * shape.mlp, shape.hidden), weight(shape.hidden, shape.mlp), cache(), cache())
                       for _ in range(shape.layers)]
        self.norm = ones()
        self.slots = torch.arange(slots, device=device)
        angles = self.slots[:, None] * 500000.0 ** (-torch.arange(0, self.head, 2, device=device) / self.head)
        angles = torch.cat((angles, angles), -1)[:, None, None, :]
        self.cos, self.sin = angles.cos().to(dtype), angles.sin().to(dtype)
        self.zero = torch.zeros(1, device=device, dtype=dtype)
        self.never = torch.full((1,), float("-inf"), device=device, dtype=dtype)
        # What a graph reads and writes stays in its place.
        self.position = torch.zeros(1, device=device, dtype=torch.long)
        self.last = {b: torch.zeros(b, 1, device=device, dtype=torch.long) for b in BATCHES}
        self.prompts = {b: torch.randint(shape.vocab, (b, shape.prompt), device=device) for b in BATCHES}
        self.graphs = {}

    def rotate(self, x, cos, sin):
        first, second = x.chunk(2, -1)
        return x * cos + torch.cat((-second, first), -1) * sin

    def attend(self, layer, x, positions, batch, length, bias, cos, sin):
        """Query heads that share keys are rows of one query: attention then needs no copies of the keys."""
        kv, group, head = self.shape.kv_heads, self.group, self.head
        q, k, v = F.linear(x, layer.qkv).split(self.sizes, -1)
        q = self.rotate(q.view(batch, length, kv, group, head), cos, sin)
        k = self.rotate(k.view(batch, length, kv, 1, head), cos, sin).view(batch, length, kv, head)
        keys, values = layer.keys[:batch], layer.values[:batch]
        keys.index_copy_(2, positions, k.transpose(1, 2))
        values.index_copy_(2, positions, v.view(batch, length, kv, head).transpose(1, 2))
        q = q.permute(0, 2, 3, 1, 4).reshape(batch, kv, group * length, head)
        out = F.scaled_dot_product_attention(q, keys, values, attn_mask=bias)
        out = out.view(batch, kv, group, length, head).permute(0, 3, 1, 2, 4)
        return F.linear(out.reshape(batch, length, kv * group * head), layer.out)

    def forward(self, tokens, positions, batch, length):
        """The most likely next token of each sequence, whose tokens at these positions are given."""
        size = (self.shape.hidden,)
        bias = torch.where(self.slots <= positions[:, None], self.zero, self.never).repeat(self.group, 1)
        cos, sin = self.cos[positions], self.sin[positions]
        x = F.embedding(tokens, self.embedding)
        for layer in self.layers:
            h = F.rms_norm(x, size, layer.norm1, 1e-5)
            x = x + self.attend(layer, h, positions, batch, length, bias, cos, sin)
            gate, up = F.linear(F.rms_norm(x, size, layer.norm2, 1e-5), layer.gate_up).chunk(2, -1)
            x = x + F.linear(F.silu(gate) * up, layer.down)
        return F.linear(F.rms_norm(x[:, -1], size, self.norm, 1e-5), self.embedding).argmax(-1, keepdim=True)

    def read_prompt(self, batch):
        length = self.shape.prompt
        self.last[batch].copy_(self.forward(self.prompts[batch], self.slots[:length], batch, length))
        self.position.fill_(length)

    def decode(self, batch):
        self.last[batch].copy_(self.forward(self.last[batch], self.position, batch, 1))
        self.position.add_(1)

    def graph(self, batch):
        if batch not in self.graphs:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):  # whatever a first call loads is loaded outside of the capture
                self.position.fill_(0)
                for _ in range(3):
                    self.decode(batch)
            torch.cuda.current_stream().wait_stream(side)
            self.graphs[batch] = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graphs[batch]):
                self.decode(batch)
        return self.graphs[batch]

    def step(self, mode, batch):
        """What decodes one token of each sequence."""
        if batch not in BATCHES or mode not in ("eager", "graph"):
            raise ValueError("no mode %s with batch %d" % (mode, batch))
        return self.graph(batch).replay if mode == "graph" else lambda: self.decode(batch)


def timed_on_cpu(run):
    began = time.perf_counter()
    run()
    took = (time.perf_counter() - began) * 1e3
    return took, took


def timed_on_gpu(run):
    """Milliseconds by the device's events, and by the host's clock until it knows the result."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    began = time.perf_counter()
    begin.record()
    run()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end), (time.perf_counter() - began) * 1e3


def middle_and_tail(values):
    ordered = sorted(values)
    return {"median": ordered[len(ordered) // 2], "p99": ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]}


def measure(decoder, timed, mode, batch, settle, stopped):
    """Prompts and tokens until it is stopped, counted after settle ms. The rate is tokens of all sequences in a second of decoding."""
    step, prompts, tokens, began = decoder.step(mode, batch), [], [], time.perf_counter()

    def ended():
        return tokens and stopped()

    while not ended():
        prompts.append(timed(lambda: decoder.read_prompt(batch))[1])
        for _ in range(decoder.shape.tokens):
            took = timed(step)
            if (time.perf_counter() - began) * 1e3 >= settle:
                tokens.append(took)
            if ended():
                break
    spent = sum(wall for _, wall in tokens) / 1e3
    return {"mode": mode, "batch": batch, "seconds": time.perf_counter() - began, "prompts": len(prompts),
            "tokens": len(tokens) * batch, "rate": len(tokens) * batch / spent,
            "first_ms": middle_and_tail(prompts), "token_ms": middle_and_tail([t for t, _ in tokens]),
            "wall_ms": middle_and_tail([w for _, w in tokens])}


class Lines:
    """The lines of standard input; waits() tells whether there is one, or the end."""

    def __init__(self):
        self.rest, self.ended = b"", False

    def waits(self):
        return self.ended or b"\n" in self.rest or bool(select.select([0], [], [], 0)[0])

    def next(self):
        while b"\n" not in self.rest and not self.ended:
            more = os.read(0, 4096)
            self.rest, self.ended = self.rest + more, not more
        line, _, self.rest = self.rest.partition(b"\n")
        return line.decode().split()


def obey(words, lines, decoder, timed):
    """The answer to a command, None for a stop when nothing runs."""
    if words[0] == "info":
        return {"pid": os.getpid(), "torch": torch.__version__, "cuda": torch.version.cuda, **decoder.shape._asdict()}
    if words[0] == "stop":
        return None
    if words[0] not in ("prepare", "start"):
        raise ValueError("no command " + words[0])
    mode, batch = words[1], int(words[2])
    if words[0] == "start":
        return measure(decoder, timed, mode, batch, float(words[3]), lines.waits)
    return measure(decoder, timed, mode, batch, 0, lambda: True)  # a prompt and a token


def main():
    on_cpu = "--cpu" in sys.argv
    device, dtype = ("cpu", torch.float32) if on_cpu else ("cuda", torch.bfloat16)
    torch.manual_seed(7)
    with torch.inference_mode():
        lines, decoder = Lines(), Decoder(TINY if "--tiny" in sys.argv else LARGE, torch.device(device), dtype)
        while not lines.ended:
            words = lines.next()
            if not words:
                continue
            try:
                answer = obey(words, lines, decoder, timed_on_cpu if on_cpu else timed_on_gpu)
                text = json.dumps(answer) if answer else ""
            except Exception as e:  # told to the suite, which ends the row with it
                text = "error what=%s:%s" % (type(e).__name__, "_".join(str(e).split())[:300])
            if text:
                print("= " + text, flush=True)


if __name__ == "__main__":
    main()
