"""Training steps of peer_pytorch.py, and what is settled before: which attention, by the time that it takes."""

import gc
import time
import warnings

import torch

from pytorch_data import load_weights
from pytorch_model import Model, Parameters
from pytorch_settings import Refusal, learning_rate, say

PIECE = 1 << 30  # elements that the optimizer is given as one tensor: below what 32-bit indices overflow at


class Clock:
    """Marks on the device's own time line, where it has one."""

    def __init__(self, device):
        self.cuda, self.marks = device.type == "cuda", []

    def mark(self):
        if self.cuda:
            self.marks.append(torch.cuda.Event(enable_timing=True))
            self.marks[-1].record()
        else:
            self.marks.append(time.perf_counter())

    def wait(self, behind):
        """For all but the last marks: enough for the device never to be idle, and no more."""
        if self.cuda and len(self.marks) > behind:
            self.marks[-1 - behind].synchronize()

    def milliseconds(self):
        self.wait(0)
        pairs = zip(self.marks, self.marks[1:])
        return [a.elapsed_time(b) if self.cuda else (b - a) * 1e3 for a, b in pairs]


def first_line(error):
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"


def allow_only(backend):
    cuda = torch.backends.cuda
    everything = backend not in ("cudnn", "flash")
    cuda.enable_cudnn_sdp(everything or backend == "cudnn")
    cuda.enable_flash_sdp(everything or backend == "flash")
    cuda.enable_mem_efficient_sdp(everything)
    cuda.enable_math_sdp(everything)


def time_attention(config, device, dtype, attention):
    """Milliseconds forward and backward, on parts of a qkv as the model has. RuntimeError: not possible."""
    m, batch = config.model, config.train.microbatch
    allow_only(attention["backend"])
    model = Model(m, device, attention, None)
    model.rope = None  # as long for all, and longer here than where it is compiled
    width = (m.heads + 2 * m.kv) * m.head_dim
    qkv = torch.randn(batch, m.seq, width, device=device, dtype=dtype).requires_grad_()
    dout = torch.randn(batch, m.seq, m.hidden, device=device, dtype=dtype)
    clock = Clock(device)
    for repeat in range(8):
        if repeat in (3, 7):
            clock.mark()
        model.attention(qkv).backward(dout)
        qkv.grad = None
    return clock.milliseconds()[0] / 4


def attention_choices(config, device, dtype, wanted, compiled):
    """What can be used, the fastest first: backend, whether it gets copies of shared keys, milliseconds."""
    m = config.model
    if m.windowed and device.type == "cuda" and compiled:
        return [{"backend": "flex", "expand": False}]
    if m.windowed or device.type != "cuda" or dtype != torch.bfloat16:
        return [{"backend": "default", "expand": False}]
    choices = []
    for backend in ("cudnn", "flash") if wanted == "auto" else (wanted,):
        for expand in (False,) if m.kv == m.heads else (False, True):
            choice = {"backend": backend, "expand": expand}
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # PyTorch says of each other backend why it is not taken
                    choice["ms"] = time_attention(config, device, dtype, choice)
                choices.append(choice)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:
                say(f"attention by {backend}{' with copied keys' if expand else ''}: {first_line(error)}")
    if not choices:
        raise Refusal(f"no attention by {wanted} for this shape on this device")
    return sorted(choices, key=lambda choice: choice["ms"])


class Trainer:
    def __init__(self, config, device, dtype, attention, compiled, steps, weights):
        m, train, optim = config.model, config.train, config.optim
        allow_only(attention["backend"])
        self.config, self.steps, self.step_count = config, steps, 0
        self.microbatches = train.global_batch // train.microbatch
        self.params = Parameters(m, device, dtype)
        if weights:
            load_weights(m, self.params, weights)
        else:
            self.params.initialise(m, train.seed)
        self.model = Model(m, device, attention, compiled)
        outer = [name for name in self.params.by_name if not name[0].isdigit()]
        self.outer = {name: self.params.by_name[name] for name in outer}
        self.layers = [self.params.of_layer(layer) for layer in range(m.layers)]
        self.inputs = torch.zeros(train.microbatch, m.seq, dtype=torch.int64, device=device)
        self.targets = torch.zeros(train.microbatch * m.seq, dtype=torch.int64, device=device)
        self.loss = torch.zeros((), device=device)
        self.graph, self.history = None, []
        self.optimizer = torch.optim.AdamW(
            [{"params": self.optimizer_params(decay), "weight_decay": optim.weight_decay if decay else 0.0}
             for decay in (True, False)],
            lr=optim.lr, betas=(optim.beta1, optim.beta2), eps=optim.eps, fused=True)

    def optimizer_params(self, decay):
        pieces, params = [], self.params
        for master, grad in zip(params.masters[decay].split(PIECE), params.grads[decay].split(PIECE)):
            pieces.append(torch.nn.Parameter(master))
            pieces[-1].grad = grad
        return pieces

    def microbatch(self):
        """Adds the microbatch in self.inputs and self.targets to the gradients and the loss."""
        loss = self.model.loss(self.outer, self.layers, self.inputs, self.targets) / self.microbatches
        loss.backward()
        grads = [param.grad for param in self.params.all]
        with torch.no_grad():
            if self.microbatches == 1:
                torch._foreach_copy_(self.params.grad_views, grads)
            else:
                torch._foreach_add_(self.params.grad_views, grads)
            self.loss += loss.detach()
        self.drop_gradients()

    def drop_gradients(self):
        for param in self.params.all:
            param.grad = None

    def capture(self):
        gc.collect()
        torch.cuda.empty_cache()  # the graph's memory is its own
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
                self.microbatch()
        finally:
            self.drop_gradients()  # where that was not the end of it
        self.graph = graph

    def step(self, tokens):
        """tokens: [global_batch, S + 1]."""
        self.loss.zero_()
        if self.microbatches > 1:
            for grads in self.params.grads.values():
                grads.zero_()
        for batch in tokens.split(self.config.train.microbatch):
            self.inputs.copy_(batch[:, :-1])
            self.targets.view(batch.shape[0], -1).copy_(batch[:, 1:])
            if self.graph:
                self.graph.replay()
            else:
                self.microbatch()
        self.update()

    def update(self):
        optim = self.config.optim
        norm = torch.stack([torch.linalg.vector_norm(grads) for grads in self.params.grads.values()]).norm()
        if optim.clip > 0:
            self.optimizer.grad_scale = torch.clamp(norm / optim.clip, min=1.0)
        rate = learning_rate(optim, self.step_count, self.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.params.copy_back()
        self.step_count += 1
        self.history.append((self.step_count, self.loss.clone(), norm, rate))
