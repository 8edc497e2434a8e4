#include "base/error_kinds.h"

namespace ms {
namespace {

constexpr ErrorKindRow kErrorKinds[] = {
    {"calibrate.noise",
     "Every attempt to measure this machine was disturbed. Stop what else runs on it, or accept less with --busy."},
    {"ckpt.bench",
     "The benchmark of checkpoints cannot write or read where it shall. The message names the file and the "
     "system's reason."},
    {"ckpt.busy", "Another process holds the checkpoint or its directory. Wait for it, or end it."},
    {"ckpt.create", "A directory of checkpoints cannot be made. Look at the path, its owner and the free space."},
    {"ckpt.damaged",
     "A checkpoint does not hold what its manifest says. An older one is used where there is one; 'ms-ckpt verify' "
     "names the files, 'ms-ckpt repair' sets the checkpoint aside."},
    {"ckpt.data",
     "The checkpoint was trained on other data than data.train now names. Name the same sources, or begin a run of "
     "its own with checkpoint.load."},
    {"ckpt.delete", "An old checkpoint cannot be deleted. Look at its owner and at the file system."},
    {"ckpt.dir", "The path checkpoint.dir is there and is no directory. Name another path."},
    {"ckpt.exists", "A checkpoint of another state is already there. Name another directory, or use --fresh."},
    {"ckpt.failed",
     "The last checkpoints could not be written, so the run ended rather than train for nothing. Mend the storage; "
     "the message names it."},
    {"ckpt.hdf5",
     "HDF5 failed, or was built in a way that this program cannot use. The message names the file and has HDF5's own "
     "words: look at the storage first, then at the library."},
    {"ckpt.incomplete",
     "A checkpoint lacks files of some ranks: it was being written when the run ended, or files were deleted since. "
     "Use "
     "an older one; 'ms-ckpt ls' says which are whole."},
    {"ckpt.list", "The directory of checkpoints cannot be listed. Look at its owner and at the file system."},
    {"ckpt.lock",
     "The lock of a directory of checkpoints cannot be taken. The file system may have no locks; the message has "
     "its reason."},
    {"ckpt.manifest",
     "The manifest of a checkpoint is not what this program writes: it was changed or cut off. Use an older "
     "checkpoint."},
    {"ckpt.memory",
     "Copies in the memory of nodes cannot be kept, for /dev/shm is too small or cannot be written. Make it "
     "larger, or switch the memory tier off."},
    {"ckpt.mismatch",
     "The checkpoint is of another model or optimizer than the configuration. Name the right one, or change the "
     "configuration back."},
    {"ckpt.node",
     "A rank finds a checkpoint damaged that is sound where rank 0 reads it. The node, or its mount of the "
     "storage, is at fault: exclude it."},
    {"ckpt.none",
     "There is no checkpoint that can be loaded. 'ms-ckpt ls' says what is there; --fresh begins at step 0."},
    {"ckpt.path", "A checkpoint that was named is not there or cannot be opened. Look at the path."},
    {"ckpt.pin", "A checkpoint cannot be pinned. Look at its owner and at the file system."},
    {"ckpt.read", "A file of a checkpoint cannot be read. The storage failed; try again once it answers."},
    {"ckpt.rename",
     "A checkpoint is written and cannot be given its name. Look at the owner of the directory and at the file "
     "system."},
    {"ckpt.rollbacks",
     "The file rollbacks.json in checkpoint.dir is lost, or is not what this program writes: it says which data the "
     "run leaves out. Put back a copy, or begin with --fresh."},
    {"ckpt.rule", "The command ms-ckpt prune was not told what stays. Give --keep-last, --keep-every or another rule."},
    {"ckpt.save", "Writing a checkpoint ended in something that should not happen. This is a bug of ms: keep the log."},
    {"ckpt.stat",
     "The system cannot say what a file of a checkpoint is. The storage failed; the message has its reason."},
    {"ckpt.stopped",
     "Saving was given up because the run ends. The cause of the end is another error: run.dir/verdict.json names it."},
    {"ckpt.sync",
     "A checkpoint is there, and the storage does not promise that it lasts. Look at the storage before relying on "
     "it."},
    {"ckpt.unreadable",
     "The storage cannot read a checkpoint now. An older one is not used for that: try again once the storage "
     "answers."},
    {"ckpt.version", "A newer version of ms wrote the checkpoint. Use that version or a later one."},
    {"ckpt.write",
     "A checkpoint cannot be written. Mostly the storage or the quota is full; the message has the system's "
     "reason."},
    {"cli.missing", "A command lacks an option that it needs. The message names it."},
    {"cli.value", "An option has a value that it does not take. The message says what it takes."},
    {"cluster.classes", "Classes of devices in a cluster file are wrong. ms-cluster(5) shows the form."},
    {"cluster.curve", "An efficiency curve in a cluster file is wrong. ms-cluster(5) shows the form."},
    {"cluster.link", "A link in a cluster file is wrong. ms-cluster(5) shows the form."},
    {"comm.closed",
     "Communication was shut down while operations were in progress. This is a bug of ms: keep the log."},
    {"comm.configuration",
     "Ranks were started with different configurations. Start all from one file that all nodes see."},
    {"comm.cut_off",
     "A rank reaches few of the other nodes. Its node, or its link, is at fault: exclude it and look with "
     "ms-netcheck locate."},
    {"comm.deadline",
     "A rank waited longer for others than run.comm_timeout allows. The message names the operation; ms-tracepp hang "
     "on the run's trace names the rank that was late."},
    {"comm.host", "A node does not know its own name: 'hostname' there says none. Exclude it until it does."},
    {"comm.launch", "Ranks were asked for as threads and started as processes as well. Drop --ranks, or the launcher."},
    {"comm.mismatch", "Two ranks disagree about an operation. This is a bug of ms: keep the log."},
    {"comm.mpi",
     "MPI failed, or is not in this build. Use srun --mpi=pmix or mpirun with the MPI that ms was built with; the "
     "message has MPI's words."},
    {"comm.nccl", "NCCL failed. NCCL_DEBUG=INFO shows more; look at the node's GPUs and links with ms-diag."},
    {"comm.peer_lost",
     "A rank ended, or its node was lost. That rank's own message, or the node's log, has the cause."},
    {"comm.store",
     "What ranks publish to each other at the start did not arrive. Look at PMIx (srun --mpi=pmix) and the network "
     "of the nodes."},
    {"config.invalid",
     "The configuration has mistakes. The message lists all of them with file, line and column; ms.toml(5) has the "
     "keys."},
    {"cuda.architecture", "The GPU is older or newer than this build serves. Build for it, or use other nodes."},
    {"cuda.cublas",
     "The library cuBLASLt failed. The GPU or the driver is at fault, or this is a bug of ms; the message has its "
     "status. Look at the GPU with ms-diag run --level 2 first."},
    {"cuda.cudnn",
     "The library cuDNN failed. The installation of cuDNN does not fit the driver, or this is a bug of ms; the message "
     "has its status. Look at the GPU with ms-diag run --level 2 first."},
    {"cuda.error", "The GPU reported an error. Exclude the node and look at it with ms-diag run --level 2."},
    {"cuda.hardware", "The hardware of the GPU failed: memory, bus or link. Exclude the node; dmesg has the Xid."},
    {"cuda.node", "The node cannot use its GPU: driver, permissions or mode. Exclude it and look with ms-diag run."},
    {"cuda.none",
     "No GPU can be used here: there is none, or this build has no CUDA. Ask for GPUs with --gres, or set "
     "run.device = \"cpu\"."},
    {"cuda.plugin",
     "The library libms_cuda.so cannot be loaded, or is of another build. Install all of ms from one build."},
    {"cuda.program", "A CUDA call was used wrongly. This is a bug of ms: keep the log."},
    {"data.bug",
     "Reading the training data ended in something that should not happen. This is a bug of ms: keep the log."},
    {"data.differs",
     "The token files of a node are not those of rank 0's node. Copy them again, or use storage that all nodes "
     "share."},
    {"data.document", "A document is longer than the tokenizer takes. Split it."},
    {"data.empty", "The text has no documents. Look at the file and at --split-on and --field."},
    {"data.field", "The name of a field of JSON is wrong. Give --field one that the lines have."},
    {"data.index", "The index of a token file is damaged or of another version. Encode the text again."},
    {"data.input",
     "A text or token file cannot be read. The message names it and has the system's reason: mostly its path or its "
     "owner."},
    {"data.json",
     "A line is not the JSON that was expected. The message names file and line; --skip-bad-lines leaves such "
     "lines out."},
    {"data.loader",
     "The process that reads the training data failed or cannot be started. The message has its reason, or the signal "
     "that ended it: SIGKILL is mostly lack of memory."},
    {"data.merge", "Token files that differ cannot be merged. Encode them with one tokenizer."},
    {"data.note", "The note beside a token file is of another file. Encode the text again."},
    {"data.output",
     "The token file cannot be written. The message has the system's reason: look at the directory, its owner and the "
     "free space."},
    {"data.pattern", "The tokenizer splits words by a pattern that is not known. The message lists those that are."},
    {"data.ring", "Memory that is shared with the loader's process cannot be had. Make /dev/shm larger."},
    {"data.short", "A token file is too short for what is asked. Use more text, or a shorter model.seq."},
    {"data.source", "A source of data.train is wrong. ms.toml(5) shows the form."},
    {"data.timeout",
     "The tokens of a step did not come in time. Either the storage does not answer, or the node has no time for its "
     "process ms-loader: its state is D in the first case."},
    {"data.token", "A token is not in the vocabulary. The file is damaged, or of another tokenizer."},
    {"data.tokenizer",
     "The tokenizer cannot be read or used. The message names what of it; --tokenizer takes byte, or a tokenizer.json "
     "of "
     "Hugging Face."},
    {"data.train",
     "A token file of the configuration cannot be opened. Make it with ms-data encode, or mend data.train or "
     "data.valid."},
    {"data.vocab",
     "The vocabulary of the data is larger than model.vocab. Set model.vocab to at least the size that the message "
     "names."},
    {"data.weight", "Weights of sources are wrong. ms.toml(5) shows the form."},
    {"extension.load",
     "A library of ms cannot be loaded. The message names it; install all packages of ms at one version."},
    {"fault.gpu", "MS_FAULT asked a rank to declare its GPU at fault, for a test. Unset it."},
    {"fault.never", "MS_FAULT names a rank or step that the run does not have. Change it, or unset it."},
    {"fault.node", "MS_FAULT asked a rank to declare its node at fault, for a test. Unset it."},
    {"fault.storage", "MS_FAULT asked storage to fail, for a test. Unset it."},
    {"fault.syntax", "MS_FAULT is not understood. ms-train(1) shows the form; or unset it."},
    {"faults.file", "A file of faults cannot be used. The message names the line and what ms-train(1) expects there."},
    {"faults.nodes", "A trace of faults does not say of how many nodes it is. Give --trace-nodes N."},
    {"faults.number", "A rate and a number of days make more faults than the simulation takes. Lower one of them."},
    {"faults.rate", "A rate has another form than 0.004 or 0.004:12h. Correct --failures or --storage-outages."},
    {"file.close", "The system failed to close a file. Storage is at fault, and what was written last may be lost."},
    {"file.create", "A file cannot be made. Look at the directory, its owner and the free space."},
    {"file.cut", "A file became shorter while it was read. Somebody writes it: wait for that, and start again."},
    {"file.kind", "A regular file was expected and something else is there. Name another path."},
    {"file.link",
     "A link cannot be made. The file system may have none: look at it, and at the owner of the directory."},
    {"file.make_directory", "A directory cannot be made. Look at the path, its owner and the free space."},
    {"file.map",
     "A file cannot be mapped into memory. The message has the system's reason; 'ulimit -v' may be too low."},
    {"file.open", "A file cannot be opened. Look at the path and its owner."},
    {"file.read", "A file cannot be read. The storage failed; the message has its reason."},
    {"file.rename", "A file is written and cannot be given its name. Look at the owner of the directory."},
    {"file.size", "A file is larger than is ever read of its kind. It is probably another file."},
    {"file.stat", "The system cannot say what a file is. The storage failed; the message has its reason."},
    {"file.sync", "The storage does not promise that a file lasts. Look at the storage before relying on it."},
    {"file.write",
     "A file cannot be written. Mostly the storage or the quota is full; the message has the system's reason."},
    {"hf.config",
     "The config.json of a Hugging Face model has something that ms cannot train. The message names it: take a model "
     "without it."},
    {"hf.export",
     "The checkpoint cannot be written in Hugging Face's form. The message names what of it that form does not have."},
    {"hf.import",
     "The Hugging Face model cannot be read. The message names what of it: download it again, or take another one."},
    {"hf.index", "The index of a model's files is wrong. Download the model again."},
    {"hf.model", "The directory holds no model of Hugging Face. Name the one with config.json."},
    {"hf.safetensors", "A file of weights is damaged. Download the model again."},
    {"hf.write",
     "The model cannot be written. The message has the system's reason: look at the directory, its owner and the free "
     "space."},
    {"log.filter", "MS_LOG is not understood. It is a level, then levels of modules, as in info,comm:debug."},
    {"mesh.layers", "Layers cannot be shared out as the mesh asks. Change mesh.pp, mesh.chunks or model.layers."},
    {"mesh.size",
     "The mesh does not fit the number of ranks. mesh.dp x mesh.pp x mesh.tp must be the number of processes that "
     "srun or mpirun starts."},
    {"mesh.slots",
     "The hosts have other slots than the mesh takes. Change the mesh, or --nodes and --ntasks-per-node."},
    {"net.interface", "No network interface leads where it shall. Name one with --interface."},
    {"optim.group", "A group of parameters in [optim] is wrong. ms.toml(5) shows the form."},
    {"replay.devices",
     "Ranks compute on processors or GPUs of different kinds, whose bits differ: guard.replay_every cannot compare "
     "them."},
    {"replay.differs",
     "guard.replay_every found ranks that compute other bits than all others from the same tokens: their device is "
     "broken. Exclude its node; the message says which checkpoints are doubtful."},
    {"replay.tie",
     "guard.replay_every found dp ranks that differ, and no more than half of them agree: look at all nodes with "
     "ms-diag at level 2."},
    {"run.busy", "Another run is at work in run.dir. Wait for it, end it, or give this one another run.dir."},
    {"run.cpu_threads", "OMP_NUM_THREADS is no number of threads. Set it right, or unset it."},
    {"run.form", "A file of run.dir is of another version or damaged. Give the run another run.dir."},
    {"sched.csv", "The CSV of a schedule has a mistake. The message names line and column."},
    {"sched.invalid", "The schedule cannot run: something waits for what never comes. The message names it."},
    {"sched.name", "There is no schedule of that name. The message lists those there are: set mesh.schedule to one."},
    {"sched.shape",
     "The schedule does not go with mesh.pp, mesh.chunks and the number of microbatches. Change one of them."},
    {"sim.deadlock", "The simulation came to a halt. This is a bug of ms: keep the configuration."},
    {"simulate.memory",
     "The run would not fit the memory of the simulated device. Use more ranks, recompute more, or a larger "
     "mesh.tp or mesh.pp."},
    {"slurm.command",
     "A command of Slurm failed or did not answer. The message has its words; 'scontrol ping' says whether slurmctld "
     "answers."},
    {"slurm.hostfile", "A list of hosts has a mistake. The message names line and word."},
    {"slurm.hostlist", "A list of hosts is not in Slurm's form, node[01-16]."},
    {"slurm.requeue", "Slurm did not queue the job again. The message says what the job is now."},
    {"slurm.topology", "A topology file has a mistake. The message names line and word."},
    {"subprocess.start", "A program cannot be started. Is it installed on this node, and on PATH?"},
    {"subprocess.wait", "The end of a program that was started cannot be learned. This is a bug of ms: keep the log."},
    {"system.call",
     "The system refused a call that never fails on a sound node. Exclude the node; the message names the call."},
    {"system.descriptors", "The process may open no more files. Raise 'ulimit -n'."},
    {"system.files", "The system failed at a file. The message names it and has the reason: look at the storage."},
    {"system.memory",
     "The node, or the job's limit, has no more memory. Use a smaller train.microbatch, more recomputation or more "
     "ranks; or raise --mem."},
    {"system.threads", "The process may start no more threads. Raise 'ulimit -u' or the job's limit."},
    {"tensor.choices", "The file of matmul algorithms is damaged. Delete it: it is made anew."},
    {"tensor.gate", "An event of another device never came. This is a bug of ms: keep the log."},
    {"tensor.matmul",
     "The library oneDNN refused a matrix multiplication. The processor or the library is at fault: exclude the node."},
    {"tensor.memory",
     "The memory of the device is used up. Use a smaller train.microbatch, more recomputation, or a larger mesh.tp "
     "or mesh.pp; ms-train plan says what a rank needs."},
    {"tensor.op", "An operation got what it does not take. This is a bug of ms: keep the log."},
    {"tool.bug", "Something that should not happen. This is a bug of ms: keep the log and the command."},
    {"trace.file", "A trace cannot be read. The message names the file; give the other ranks' files without it."},
    {"trace.version", "A newer version of ms wrote the trace. Use that version or a later one."},
    {"train.bug", "Something that should not happen. This is a bug of ms: keep the log and run.dir."},
    {"train.diverged",
     "The loss is not a number, or grew beyond what guard allows, for more steps on end than guard.max_skips. "
     "Lower optim.lr, or go on from an older checkpoint; a bad node shows in ms-diag run --level 2."},
    {"train.fp8",
     "Cluster files say nothing of FP8, so that it cannot be simulated. Simulate with train.dtype = \"bf16\"."},
    {"train.memory",
     "The run needs more memory than the node or 'ulimit -v' has. Use a smaller model, batch or number of threads."},
    {"train.rollback",
     "A guard wants to roll the run back, and there is no older checkpoint, or too many rollbacks were made. Look at "
     "the loss and the data first: a lower optim.lr or a longer warm-up may help."},
    {"tune.none", "No layout of the model fits this many devices of this memory. Use more of them."},
    {"watch.signals", "The process cannot listen for signals. The node is at fault: exclude it."},
    {"watch.verdict", "The file verdict.json of an earlier run cannot be removed. Look at the owner of run.dir."},
};

}  // namespace

std::span<const ErrorKindRow> error_kinds() { return kErrorKinds; }

}  // namespace ms
