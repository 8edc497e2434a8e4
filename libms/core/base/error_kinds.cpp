#include "base/error_kinds.h"

namespace ms {
namespace {

constexpr ErrorKindRow kErrorKinds[] = {
    {"calibrate.noise",
     "Other processes disturbed every measurement of this machine. Stop them, or accept a lower accuracy with --busy."},
    {"ckpt.bench",
     "The checkpoint benchmark cannot write or read its directory. The message names the file and the system's "
     "reason."},
    {"ckpt.busy", "Another process holds the checkpoint or its directory. Wait for that process, or end it."},
    {"ckpt.create", "A directory of checkpoints cannot be created. Check the path, its owner and the free space."},
    {"ckpt.damaged",
     "A checkpoint does not match its manifest. An older one is used if there is one. 'ms-ckpt verify' names the "
     "files; 'ms-ckpt repair' sets the checkpoint aside."},
    {"ckpt.data",
     "The checkpoint was trained on other data than data.train. Set data.train to the same sources, or start a new run "
     "with checkpoint.load."},
    {"ckpt.delete", "An old checkpoint cannot be deleted. Check its owner and the file system."},
    {"ckpt.dir", "checkpoint.dir exists and is not a directory. Set another path."},
    {"ckpt.exists",
     "The output directory already has a checkpoint of this step or a later one. Write to another directory."},
    {"ckpt.failed",
     "The last checkpoints could not be written, so the run ended to avoid wasted work. Repair the storage, which the "
     "message names."},
    {"ckpt.foreign", "Another program wrote the checkpoint, and the command is for those of ms-train."},
    {"ckpt.hdf5",
     "HDF5 failed, or this build of HDF5 cannot be used. The message names the file and HDF5's error. Check the "
     "storage first, then the library."},
    {"ckpt.incomplete",
     "A checkpoint lacks files of some ranks: the run ended during the save, or files were deleted later. Use an older "
     "checkpoint; 'ms-ckpt ls' lists complete ones."},
    {"ckpt.link",
     "A path contains a symbolic link of one user to a directory of another user, or another user may have laid what "
     "is on the way to your own directory. If that is intended, give the directory itself."},
    {"ckpt.list", "The directory of checkpoints cannot be listed. Check its owner and the file system."},
    {"ckpt.lock",
     "A directory of checkpoints cannot be locked. The file system may not support locks; the message has its reason."},
    {"ckpt.manifest",
     "The manifest of a checkpoint is not valid: it was changed or truncated. Use an older checkpoint."},
    {"ckpt.memory",
     "Copies in the memory of nodes cannot be stored, because /dev/shm is too small or not writable. Make it larger, "
     "or disable the memory tier."},
    {"ckpt.mismatch",
     "The checkpoint has another model or optimizer than the configuration. Use the right checkpoint, or restore the "
     "configuration."},
    {"ckpt.node",
     "A checkpoint is sound as rank 0 reads it, but damaged as another rank reads it. The other rank's node, or the "
     "node's mount of the storage, is at fault. Exclude the node."},
    {"ckpt.none", "No checkpoint can be loaded. 'ms-ckpt ls' lists what exists; --fresh starts at step 0."},
    {"ckpt.path", "The given checkpoint does not exist or cannot be opened. Check the path."},
    {"ckpt.pin", "A checkpoint cannot be pinned. Check its owner and the file system."},
    {"ckpt.read", "A file of a checkpoint cannot be read: the storage failed. Try again when it works."},
    {"ckpt.rename",
     "A complete checkpoint cannot be renamed to its final name. Check the owner of the directory and the file "
     "system."},
    {"ckpt.rollbacks",
     "rollbacks.json in checkpoint.dir, which lists the data that the run leaves out, is lost or not valid. Restore a "
     "copy, or start over with --fresh."},
    {"ckpt.rule", "ms-ckpt prune needs a rule for what to keep. Give --keep-last, --keep-every or both."},
    {"ckpt.save", "An unexpected error occurred while writing a checkpoint. This is a bug of ms: keep the log."},
    {"ckpt.stat",
     "The system call stat failed for a file of a checkpoint: the storage failed. The message has the reason."},
    {"ckpt.stopped",
     "A save was abandoned because the run ends. The cause is another error, see run.dir/verdict.json."},
    {"ckpt.sync",
     "The storage failed to sync a checkpoint, which may be lost at a power failure. Check the storage before you rely "
     "on the checkpoint."},
    {"ckpt.unreadable",
     "The storage cannot read a checkpoint now. An older one is not used instead. Try again when the storage works."},
    {"ckpt.version", "A newer version of ms wrote the checkpoint. Use that version or a later one."},
    {"ckpt.write",
     "A checkpoint cannot be written. Usually the storage or the quota is full; the message has the system's reason."},
    {"cli.missing", "A command lacks a required option. The message names it."},
    {"cli.value", "An option has an invalid value. The message lists valid ones."},
    {"cluster.classes", "The device classes in a cluster file are not valid. ms-cluster(5) shows the form."},
    {"cluster.curve", "An efficiency curve in a cluster file is not valid. ms-cluster(5) shows the form."},
    {"cluster.link", "A link in a cluster file is not valid. ms-cluster(5) shows the form."},
    {"comm.closed",
     "Communication was shut down while operations were in progress. This is a bug of ms: keep the log."},
    {"comm.configuration",
     "Ranks were started with different configurations. Start all ranks with one file that all nodes can read."},
    {"comm.cut_off",
     "A rank can reach only a few other nodes. Its node, or the node's link, is at fault. Exclude it, and test it with "
     "ms-netcheck locate."},
    {"comm.deadline",
     "A rank waited for its peers longer than run.comm_timeout allows. The message names the operation; ms-tracepp "
     "hang with the run's trace names the late rank."},
    {"comm.host", "A node has no hostname: 'hostname' prints none. Exclude it until this is corrected."},
    {"comm.launch", "--ranks asks for threads, but a launcher started processes. Remove --ranks, or the launcher."},
    {"comm.mismatch", "Two ranks issued different operations. This is a bug of ms: keep the log."},
    {"comm.mpi",
     "MPI failed, or is not in this build. Use srun --mpi=pmix or mpirun with the MPI that ms was built with. The "
     "message has MPI's error."},
    {"comm.nccl", "NCCL failed. NCCL_DEBUG=INFO prints details. Check the node's GPUs and links with ms-diag."},
    {"comm.peer_lost",
     "A rank exited, or its node was lost. The rank's own message, or the node's log, has the cause."},
    {"comm.store",
     "The key-value exchange between ranks at the start failed. Check PMIx (srun --mpi=pmix) and the network of the "
     "nodes."},
    {"config.invalid",
     "The configuration has errors. The message lists all of them with file, line and column; ms.toml(5) describes the "
     "keys."},
    {"cuda.architecture", "This build does not support the GPU's architecture. Build for it, or use other nodes."},
    {"cuda.cublas",
     "cuBLASLt failed: the GPU or the driver is at fault, or this is a bug of ms. The message has its status. Check "
     "the GPU with ms-diag run --level 2 first."},
    {"cuda.cudnn",
     "cuDNN failed: the installed cuDNN does not fit the driver, or this is a bug of ms. The message has its status. "
     "Check the GPU with ms-diag run --level 2 first."},
    {"cuda.error", "The GPU reported an error. Exclude the node and check it with ms-diag run --level 2."},
    {"cuda.hardware", "The GPU's hardware failed: memory, bus or link. Exclude the node; dmesg has the Xid."},
    {"cuda.node",
     "The node cannot use its GPU because of the driver, permissions or the GPU's mode. Exclude it and check it with "
     "ms-diag run."},
    {"cuda.none",
     "No GPU is available: the node has none, or this build has no CUDA. Request GPUs with --gres, or set run.device = "
     "\"cpu\"."},
    {"cuda.plugin", "libms_cuda.so cannot be loaded, or is from another build. Install all of ms from one build."},
    {"cuda.program", "A CUDA call was not valid. This is a bug of ms: keep the log."},
    {"data.bug", "An unexpected error occurred while reading the training data. This is a bug of ms: keep the log."},
    {"data.cache",
     "The cache of objects on this node cannot be written. Free space there, or set MS_DATA_CACHE to another "
     "directory."},
    {"data.differs",
     "The token files on a node differ from those on rank 0's node. Copy them again, or use shared storage."},
    {"data.document", "A document is too long for the tokenizer. Split it."},
    {"data.empty", "The text has no documents. Check the file, --split-on and --field."},
    {"data.field", "The name of a JSON field is wrong. Set --field to a field of the lines."},
    {"data.image",
     "Images of a token file are damaged, or in patches of another size than model.patch_size. The message says which. "
     "Set model.patch_size, or encode the data again."},
    {"data.index", "The index of a token file is damaged or has another version. Encode the text again."},
    {"data.input",
     "A text or token file cannot be read. The message names it and the system's reason; usually the path or the owner "
     "is wrong."},
    {"data.json",
     "A line is not valid JSON Lines. The message names file and line; --skip-bad-lines skips such lines."},
    {"data.loader",
     "The process that reads the training data failed or cannot be started. The message has the reason, or the signal "
     "that ended it. SIGKILL usually means that memory was exhausted."},
    {"data.long", "A document has more tokens than a sample. Choose --seq or --too-long of ms-data pack."},
    {"data.mask", "The loss ignores all tokens of a file, or a program does not read loss masks."},
    {"data.merge", "Token files of different tokenizers or types cannot be merged. Encode them with one tokenizer."},
    {"data.note", "PREFIX.meta.json belongs to another token file. Encode the text again."},
    {"data.object",
     "An object of s3:// cannot be read. The message has the store's reply: wrong credentials, region or endpoint, no "
     "such "
     "object, or the store does not answer."},
    {"data.output",
     "The token file cannot be written. The message has the system's reason. Check the directory, its owner and the "
     "free space."},
    {"data.packed", "A token file is packed to samples of another length. Set model.seq, or pack it again."},
    {"data.pattern", "The tokenizer splits words by an unknown pattern. The message lists the known ones."},
    {"data.pickle", "A Python pickle is damaged, or holds more than plain data. It is not read."},
    {"data.ring", "Memory shared with the loader process cannot be allocated. Make /dev/shm larger."},
    {"data.short", "A token file is too short. Use more text, or a shorter model.seq."},
    {"data.source", "A source of data.train is not valid. ms.toml(5) shows the form."},
    {"data.template", "A chat template is not known, or not that of the tokenizer. The message lists the known ones."},
    {"data.timeout",
     "The tokens of a step did not arrive in time. If the process ms-loader is in state D, the storage does not "
     "respond; otherwise it does not get enough CPU time."},
    {"data.token", "A token is not in the vocabulary. The file is damaged, or was written with another tokenizer."},
    {"data.tokenizer",
     "The tokenizer cannot be read or used. The message has the reason. --tokenizer takes byte, or a tokenizer.json of "
     "Hugging Face."},
    {"data.train",
     "A token file of the configuration cannot be opened. Create it with ms-data encode, or correct data.train or "
     "data.valid."},
    {"data.unread", "A part of a checkpoint is of a form or a size that ms does not read. It is not judged."},
    {"data.vocab",
     "The vocabulary of the data is larger than model.vocab. Set model.vocab to at least the size in the message."},
    {"data.weight", "The weights of the sources are not valid. ms.toml(5) shows the form."},
    {"data.zip", "An archive that torch.save wrote is damaged or cut off. Use another checkpoint."},
    {"extension.load",
     "A library of ms cannot be loaded. The message names it; install all packages of ms at one version."},
    {"fabric.size",
     "A job has more hosts or uplinks than a forecast of its fabric may have. The message has the limits."},
    {"fault.gpu", "MS_FAULT made a rank declare its GPU at fault, for a test. Unset it."},
    {"fault.never", "MS_FAULT names a rank or step that the run does not have. Change it, or unset it."},
    {"fault.node", "MS_FAULT made a rank declare its node at fault, for a test. Unset it."},
    {"fault.storage", "MS_FAULT simulated a storage failure, for a test. Unset it."},
    {"fault.syntax", "MS_FAULT is not valid. ms-train(1) shows the form. Correct it, or unset it."},
    {"faults.file", "A file of faults is not valid. The message names the line and what ms-train(1) expects there."},
    {"faults.nodes",
     "A trace of faults names only nodes with faults, and the number of all nodes is missing or wrong. Give it "
     "with --trace-nodes N."},
    {"faults.number", "The rate and the number of days give too many faults to simulate. Lower one of them."},
    {"faults.rate", "A rate must have the form 0.004 or 0.004:12h. Correct --failures or --storage-outages."},
    {"file.close", "A file cannot be closed: the storage failed, and the last writes may be lost."},
    {"file.create", "A file cannot be created. Check the directory, its owner and the free space."},
    {"file.cut",
     "A file became shorter while it was read. Another process is writing it: wait for that process, and start again."},
    {"file.kind", "The path is not a regular file. Use another path."},
    {"file.link",
     "A link cannot be created. The file system may not support links. Check it, and the owner of the directory."},
    {"file.make_directory", "A directory cannot be created. Check the path, its owner and the free space."},
    {"file.map",
     "A file cannot be mapped into memory. The message has the system's reason; 'ulimit -v' may be too low."},
    {"file.open", "A file cannot be opened. Check the path and its owner."},
    {"file.read", "A file cannot be read. The storage failed; the message has its reason."},
    {"file.rename", "A complete file cannot be renamed to its final name. Check the owner of the directory."},
    {"file.size", "A file exceeds the size limit for files of its kind. It is probably the wrong file."},
    {"file.stat", "The system call stat failed for a file: the storage failed. The message has the reason."},
    {"file.sync",
     "The storage failed to sync a file, which may be lost at a power failure. Check the storage before you rely on "
     "the file."},
    {"file.write",
     "A file cannot be written. Usually the storage or the quota is full; the message has the system's reason."},
    {"hf.config",
     "The config.json of a Hugging Face model has a feature that ms does not support. The message names it. Use a "
     "model without it."},
    {"hf.export",
     "The checkpoint cannot be written as a Hugging Face model. The message names the feature that Hugging Face's "
     "format lacks."},
    {"hf.import",
     "The Hugging Face model cannot be read. The message has the reason. Download it again, or use another one."},
    {"hf.index", "The index of a model's files is not valid. Download the model again."},
    {"hf.model", "The directory has no Hugging Face model. Use the directory with config.json."},
    {"hf.safetensors", "A file of weights is damaged. Download the model again."},
    {"hf.write",
     "The model cannot be written. The message has the system's reason. Check the directory, its owner and the free "
     "space."},
    {"image.build", "This build reads no images. Install libjpeg-turbo and libpng, and build ms again."},
    {"log.filter", "MS_LOG is not valid. It is a level, then levels of modules, as in info,comm:debug."},
    {"mesh.layers", "The layers cannot be divided over the mesh. Change mesh.pp, mesh.chunks or model.layers."},
    {"mesh.size",
     "The mesh does not fit the number of ranks. mesh.dp x mesh.pp x mesh.tp x mesh.cp must equal the number of "
     "processes that srun or mpirun starts."},
    {"mesh.slots", "The slots of the hosts do not fit the mesh. Change the mesh, or --nodes and --ntasks-per-node."},
    {"net.interface", "No local network interface has a route to the peer. Name one with --interface."},
    {"optim.group", "A parameter group in [optim] is not valid. ms.toml(5) shows the form."},
    {"replay.devices",
     "guard.replay_every cannot compare ranks on different kinds of processors or GPUs, because their bits differ."},
    {"replay.differs",
     "guard.replay_every found ranks whose results for the same tokens differ from those of the majority: their device "
     "is broken. Exclude its node. The message names the checkpoints that are doubtful."},
    {"replay.tie",
     "guard.replay_every found dp ranks that differ without a majority. Check all nodes with ms-diag at level 2."},
    {"run.busy", "Another run uses run.dir. Wait for it, end it, or set another run.dir."},
    {"run.cpu_threads", "OMP_NUM_THREADS is not a number of threads. Correct it, or unset it."},
    {"run.dir",
     "Other users can write to run.dir or trace.dir, or to a directory above it, or one of these is theirs. Set a "
     "run.dir of your own, or close it to others: chmod o-w."},
    {"run.form", "A file in run.dir is damaged or has another version. Set another run.dir."},
    {"sched.csv", "The CSV file of a schedule has an error. The message names line and column."},
    {"sched.invalid",
     "The schedule deadlocks: an operation waits for another one that is never issued. The message names it."},
    {"sched.name", "There is no schedule of that name. Set mesh.schedule to one that the message lists."},
    {"sched.shape",
     "The schedule does not fit mesh.pp, mesh.chunks and the number of microbatches. Change one of them."},
    {"sim.deadlock", "The simulation deadlocked. This is a bug of ms: keep the configuration."},
    {"simulate.fabric",
     "The fabric file and the cluster file of a simulation describe different hosts or leaf switches, or both account "
     "for "
     "collisions. The message has the values that differ."},
    {"simulate.memory",
     "The run does not fit the memory of the simulated device. Use more ranks, recompute more, or a larger mesh.tp or "
     "mesh.pp."},
    {"slurm.command",
     "A Slurm command failed or did not respond. The message has its error; 'scontrol ping' shows whether slurmctld "
     "responds."},
    {"slurm.hostfile", "A list of hosts has an error. The message names line and word."},
    {"slurm.hostlist", "A list of hosts is not a valid Slurm hostlist. A valid one is node[01-16]."},
    {"slurm.no_answer", "Slurm did not answer. Try again; 'scontrol ping' shows whether slurmctld responds."},
    {"slurm.requeue", "Slurm did not requeue the job. The message has the job's state."},
    {"slurm.topology", "A topology file has an error. The message names line and word."},
    {"subprocess.start", "A program cannot be started. Check that it is installed on this node and on PATH."},
    {"subprocess.wait", "ms started a program and could not wait for its end. This is a bug of ms: keep the log."},
    {"system.call",
     "A system call failed, which never happens on a healthy node. Exclude the node. The message names the call."},
    {"system.descriptors", "The process has reached its limit of open files. Raise 'ulimit -n'."},
    {"system.files", "An operation on a file failed. The message names the file and the reason. Check the storage."},
    {"system.memory",
     "The memory of the node, or the memory limit of the job, is exhausted. Use a smaller train.microbatch, more "
     "recomputation or more ranks, or raise --mem."},
    {"system.threads", "The process has reached its limit of threads. Raise 'ulimit -u' or the job's limit."},
    {"tensor.choices", "The file of autotuned GEMM algorithms is damaged. Delete it; the next run creates it again."},
    {"tensor.gate", "An event of another device never arrived. This is a bug of ms: keep the log."},
    {"tensor.matmul", "oneDNN refused a GEMM. The processor or the library is at fault: exclude the node."},
    {"tensor.memory",
     "The memory of the device is exhausted. Use a smaller train.microbatch, more recomputation, or a larger mesh.tp "
     "or mesh.pp. ms-train plan prints the memory that a rank needs."},
    {"tensor.op", "An operation received invalid arguments. This is a bug of ms: keep the log."},
    {"tool.bug", "An unexpected error. This is a bug of ms: keep the log and the command."},
    {"trace.file", "A trace cannot be read. The message names the file. Use the other ranks' files without it."},
    {"trace.version", "A newer version of ms wrote the trace. Use that version or a later one."},
    {"train.bug", "An unexpected error. This is a bug of ms: keep the log and run.dir."},
    {"train.diverged",
     "The loss is NaN and guard.nonfinite is stop, or guard.max_skips steps in a row were skipped. Lower optim.lr, or "
     "continue from an older checkpoint. Check for a bad node with ms-diag run --level 2."},
    {"train.fp8",
     "Cluster files have no speeds for FP8, so a run with FP8 cannot be simulated. Simulate with train.dtype = "
     "\"bf16\"."},
    {"train.memory",
     "The run needs more memory than the node or 'ulimit -v' allows. Use a smaller model or batch, or fewer threads."},
    {"train.rollback",
     "A guard requires a rollback, but there is no older checkpoint, or guard.max_rollbacks is reached. Check the loss "
     "and the data first; a lower optim.lr or a longer warm-up may help."},
    {"train.spike",
     "The gradient norm exceeded the limit of guard.spike_zscore, and guard.spike is stop. Lower optim.lr, use a "
     "longer warm-up, or set guard.spike to skip."},
    {"tune.none", "No layout of the model fits the memory of this many devices. Use more devices."},
    {"watch.signals", "The process cannot install signal handlers. The node is at fault: exclude it."},
    {"watch.verdict", "verdict.json of an earlier run cannot be removed. Check the owner of run.dir."},
};

}  // namespace

std::span<const ErrorKindRow> error_kinds() { return kErrorKinds; }

}  // namespace ms
