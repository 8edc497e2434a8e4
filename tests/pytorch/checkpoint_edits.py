"""Changes to checkpoints of PyTorch, without PyTorch: their metadata, bytes of their archives, members of them."""
import io
import pickle
import struct
import sys
import types
import zipfile
import zlib


class Stub:
    """An object of a class of torch: its state, as data."""

    def __setstate__(self, state):
        self.__dict__.update(state if isinstance(state, dict) else {"_tuple": state})

    def __getstate__(self):
        return self.__dict__.get("_tuple", self.__dict__)


def stubs(names):
    """Makes the classes that a .metadata names, so that it can be read and written again without torch."""
    for module, name in names:
        if module not in sys.modules:
            sys.modules[module] = types.ModuleType(module)
        if not hasattr(sys.modules[module], name):
            setattr(sys.modules[module], name, type(name, (Stub,), {"__module__": module, "__qualname__": name}))


class Size(tuple):
    """torch.Size, which pickles as a call with a tuple."""
    __module__, __qualname__ = "torch", "Size"

    def __reduce__(self):
        return Size, (tuple(self),)


class Named:
    """A global such as torch.float32, or a call such as _get_layout: pickled as what it is named by."""

    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call


class Reader(pickle.Unpickler):
    def find_class(self, module, name):
        if (module, name) == ("torch", "Size"):
            sys.modules.setdefault("torch", types.ModuleType("torch")).Size = Size
            return Size
        stubs([(module, name)])
        made = getattr(sys.modules[module], name)
        if name in ("_get_layout", "_MEM_FORMAT_ENCODING"):
            return lambda *arguments: Named(made, arguments)
        return made


def edit(path, change):
    """Changes the Metadata of a checkpoint."""
    metadata = Reader(io.BytesIO(path.read_bytes())).load()
    change(metadata)
    path.write_bytes(pickle.dumps(metadata, protocol=4))


def as_torch_2_0(metadata):
    """Of torch 2.0 and 2.1: three fields, and the properties of tensors in another module and without strides."""
    stubs([("torch.distributed._shard.sharded_tensor.metadata", "TensorProperties")])
    old = sys.modules["torch.distributed._shard.sharded_tensor.metadata"].TensorProperties
    for name in ("version", "storage_meta"):
        del metadata.__dict__[name]
    for entry in metadata.state_dict_metadata.values():
        if "properties" in entry.__dict__:
            properties = old()
            properties.__setstate__(entry.properties.__getstate__()[:5])
            entry.properties = properties


def patch(path, begin, size, name, at, value, mend=True):
    """Writes bytes into a member of the archive in a part of a file; with `mend` also the CRC-32 that belongs to them."""
    data = bytearray(path.read_bytes())
    archive = data[begin:begin + size]
    with zipfile.ZipFile(io.BytesIO(archive)) as reader:
        info = next(i for i in reader.infolist() if i.filename.endswith(name))
    head = begin + info.header_offset
    data_at = head + 30 + sum(struct.unpack_from("<HH", data, head + 26))
    data[data_at + at:data_at + at + len(value)] = value
    if mend:
        crc = struct.pack("<I", zlib.crc32(data[data_at:data_at + info.file_size]))
        entry = data.rindex(info.filename.encode(), begin, begin + size) - 46
        data[entry + 16:entry + 20] = crc
    path.write_bytes(data)


def rewrite(path, change):
    """Writes an archive anew, with members changed by change(name, data): None leaves one out."""
    with zipfile.ZipFile(path) as reader:
        members = [(i.filename, reader.read(i)) for i in reader.infolist()]
    with zipfile.ZipFile(path, "w") as writer:
        for name, data in members:
            data = change(name, data)
            if data is not None:
                writer.writestr(zipfile.ZipInfo(name), data)
