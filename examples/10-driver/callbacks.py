"""Heartbeats for ms-driver from the trainers of other libraries. Copy this file and heartbeat.py beside your script.

    transformers.Trainer(..., callbacks=[hugging_face()])
    lightning.Trainer(..., callbacks=[lightning()])
    torchtitan(Trainer)                     # torchtitan's class, before it is built
"""

import functools

from heartbeat import beat


def hugging_face():
    import transformers

    class Heartbeat(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, **others):
            logged = state.log_history[-1] if state.log_history else {}
            beat(state.global_step, loss=logged.get("loss"))

    return Heartbeat()


def lightning():
    try:
        from lightning.pytorch import Callback
    except ImportError:
        from pytorch_lightning import Callback

    class Heartbeat(Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, index):
            beat(trainer.global_step, loss=trainer.callback_metrics.get("loss"))

    return Heartbeat()


def torchtitan(trainer):
    """Makes a class with train_step() and a counter `step`, as torchtitan's Trainer, report each step."""
    train_step = trainer.train_step

    @functools.wraps(train_step)
    def train_and_beat(self, *args, **others):
        result = train_step(self, *args, **others)
        beat(self.step)
        return result

    trainer.train_step = train_and_beat
    return trainer
