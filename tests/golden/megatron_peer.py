#!/usr/bin/env python3
"""Token files are those of Megatron-LM: what ms-data writes its IndexedDataset reads, and the other way round, token for token
and document for document. Nightly: installs numpy and megatron-core, without the PyTorch that it asks for, into a virtual
environment, unless MS_MEGATRON_PYTHON has them; of megatron-core only the modules of the format are loaded.

usage: megatron_peer.py MS_DATA
"""

import importlib
import importlib.util
import os
import random
import subprocess
import sys
import tempfile
import types

SKIPPED = 77
END = 256  # of a document, in the byte tokenizer
DOCUMENTS = 300


def reexecute():
    """Runs this script again with a Python that has megatron-core, or says why not."""
    if "MS_MEGATRON_PYTHON" in os.environ:
        python = os.environ.pop("MS_MEGATRON_PYTHON")
        os.execv(python, [python, "-B", *sys.argv])
    with tempfile.TemporaryDirectory() as place:
        pip = [place + "/bin/pip", "install", "--quiet"]
        for command in [[sys.executable, "-m", "venv", place], pip + ["numpy"], pip + ["--no-deps", "megatron-core"]]:
            if subprocess.run(command, stdout=subprocess.DEVNULL).returncode != 0:
                print("skipped: there is no megatron-core, and it cannot be installed")
                sys.exit(SKIPPED)
        sys.exit(subprocess.run([place + "/bin/python", "-B", *sys.argv]).returncode)


def indexed_dataset():
    """The module of megatron-core. Its packages import all of Megatron, so they are stood in for, and so is PyTorch, of which
    it takes a base class and a name."""
    found = importlib.util.find_spec("megatron")
    if found is None or importlib.util.find_spec("numpy") is None:
        reexecute()
    root = os.path.join(list(found.submodule_search_locations)[0], "core")
    for name, path in [("megatron.core", root), ("megatron.core.datasets", root + "/datasets")]:
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = [path]
    utils = sys.modules["megatron.core.utils"] = types.ModuleType("megatron.core.utils")
    utils.log_single_rank = lambda *_args, **_options: None
    torch = sys.modules["torch"] = types.ModuleType("torch")
    torch.Tensor = object
    torch.utils = types.SimpleNamespace(data=types.SimpleNamespace(Dataset=object))
    return importlib.import_module("megatron.core.datasets.indexed_dataset")


def run(*command):
    done = subprocess.run(command, capture_output=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command[:3])}: {done.stderr.decode()}")
    return done.stdout


def read_by_megatron(module, prefix, documents):
    """Whether Megatron's reader, by mapping and by reading, finds these documents."""
    same = True
    for mmap in (True, False):
        dataset = module.IndexedDataset(prefix, mmap=mmap)
        bounds = dataset.document_indices
        there = [[token for i in range(begin, end) for token in dataset[i].tolist()] for begin, end in zip(bounds, bounds[1:])]
        same = same and there == documents and dataset.sequence_lengths.sum() == sum(map(len, documents))
        print(f"{os.path.basename(prefix)}: Megatron reads {len(there)} documents, {dataset.index.dtype.__name__}, "
              f"{'mapped' if mmap else 'from the file'}: {'the same' if same else 'DIFFERENT'}")
    return same


def read_by_us(ms_data, prefix, texts):
    run(ms_data, "verify", prefix)
    same = run(ms_data, "decode", "--tokenizer", "byte", "--split-on", "%", prefix) == b"%\n".join(texts)
    print(f"{os.path.basename(prefix)}: ms-data reads Megatron's documents: {'the same' if same else 'DIFFERENT'}")
    return same


def main():
    ms_data = os.path.realpath(sys.argv[1])
    module = indexed_dataset()
    import numpy

    random.seed(3)
    texts = [bytes(random.choices(range(32, 127), k=random.choice([1, 7, 60, 900, 20000]))).replace(b"%", b"x") + b"\n"
             for _ in range(DOCUMENTS)]
    documents = [[*text, END] for text in texts]
    with tempfile.TemporaryDirectory() as place:
        with open(place + "/text", "wb") as file:
            file.write(b"%\n".join(texts))
        run(ms_data, "encode", "--tokenizer", "byte", "--split-on", "%", "-o", place + "/ours", place + "/text")
        same = read_by_megatron(module, place + "/ours", documents)
        for kind in (numpy.uint16, numpy.int16, numpy.int32, numpy.int64, numpy.float32, numpy.float64):
            for modes in (False, True):
                prefix = f"{place}/{kind.__name__}{'-modes' if modes else ''}"
                builder = module.IndexedDatasetBuilder(prefix + ".bin", kind, multimodal=modes)
                for document in documents:  # of one sequence or more
                    cut = random.randrange(len(document))
                    lengths = [part for part in (cut, len(document) - cut) if part > 0]
                    builder.add_document(document, lengths, [1] * len(lengths))
                builder.finalize(prefix + ".idx")
                same = read_by_us(ms_data, prefix, texts) and same
            if kind in (numpy.uint16, numpy.int32):  # what ms-data writes
                run(ms_data, "merge", "-o", prefix + "-merged", prefix, prefix)
                same = read_by_megatron(module, prefix + "-merged", documents + documents) and same
    sys.exit(not same)


if __name__ == "__main__":
    main()
