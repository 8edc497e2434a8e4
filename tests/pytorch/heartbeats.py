"""Heartbeats of examples/10-driver: of a loop with bad numbers, and of real trainers, which must report all their steps.
Trainers that are not installed are named, and not tried.   usage: heartbeats.py DIRECTORY"""

import importlib
import os
import pathlib
import socket
import sys
import tempfile

try:
    import torch
except ImportError:
    torch = None

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples/10-driver"))
import callbacks  # noqa: E402
from heartbeat import beat  # noqa: E402

STEPS = 5
socket_path = tempfile.mkdtemp(dir=sys.argv[1]) + "/beats"
listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
listener.bind(socket_path)
os.environ.update(MS_HEARTBEAT=socket_path, RANK="3")


def model():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 1)

        def forward(self, x, labels=None):
            out = self.linear(x)
            return {"loss": ((out - labels) ** 2).mean(), "logits": out}

    return Model()


def samples():
    return [{"x": torch.ones(4), "labels": torch.ones(1)} for _ in range(STEPS)]


def heard():
    beats = []
    while True:
        try:
            beats.append(dict(word.split("=") for word in listener.recv(4096).decode().split(" ")))
        except BlockingIOError:
            return beats


def run_transformers(transformers):
    arguments = transformers.TrainingArguments(output_dir=sys.argv[1], max_steps=STEPS, per_device_train_batch_size=1,
                                               logging_steps=1, report_to=[], save_strategy="no", use_cpu=True,
                                               disable_tqdm=True)
    transformers.Trainer(model=model(), args=arguments, train_dataset=samples(),
                         callbacks=[callbacks.hugging_face()]).train()


def run_lightning(lightning):
    class Module(lightning.pytorch.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = model()

        def training_step(self, batch, index):
            loss = self.model(**batch)["loss"]
            self.log("loss", loss)
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    lightning.pytorch.Trainer(max_steps=STEPS, accelerator="cpu", devices=1, logger=False, enable_checkpointing=False,
                              enable_progress_bar=False, enable_model_summary=False, default_root_dir=sys.argv[1],
                              callbacks=[callbacks.lightning()]).fit(Module(), torch.utils.data.DataLoader(samples()))


def run_torchtitan(_):
    """Its class as it is, without the groups and meshes that it needs to be built: only whose step is counted and when."""
    try:
        from torchtitan.trainer import Trainer
    except ImportError:
        from torchtitan.train import Trainer
    steps = []

    class Short(Trainer):
        def __init__(self):
            self.step = 0

        def train_step(self, data):
            steps.append(data)

    callbacks.torchtitan(Short)
    trainer = Short()
    for trainer.step in range(1, STEPS + 1):
        trainer.train_step(None)
    assert len(steps) == STEPS and callable(Trainer.train_step)


def check(name, beats, has_loss):
    assert [int(one["step"]) for one in beats] == list(range(1, STEPS + 1)), (name, beats)
    assert all(one["rank"] == "3" for one in beats), (name, beats)
    assert not has_loss or any(float(one["loss"]) > 0 for one in beats if "loss" in one), (name, beats)
    print(name, "reports", len(beats), "steps")


class Tensor:
    """As a tensor on a GPU: to read it, the host waits."""
    device = type("Device", (), {"type": "cuda"})

    def __float__(self):
        raise AssertionError("waits for the GPU")


# What is no number never ends a training, and does not stop the beat.
beat(1, loss=None, Aux=2.0, gpu=Tensor(), text="x", nan=float("nan"), many=[1, 2])
beat("x")
beat(None, loss=1)
assert heard() == [{"rank": "3", "step": "1", "aux": "2", "nan": "nan"}]
for name, run in {"transformers": run_transformers, "lightning": run_lightning, "torchtitan": run_torchtitan}.items():
    try:
        module = importlib.import_module(name) if torch else None
    except ImportError:
        module = None
    if module is None:
        print(name, "is not installed: not tried")
        continue
    run(module)
    check(name, heard(), name != "torchtitan")
