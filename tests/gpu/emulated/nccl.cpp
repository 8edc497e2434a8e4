// NCCL of the emulated GPU, for members that are processes of one host or threads of one process. Rank 0 is the hub:
// the process that creates the unique id listens at the address in it, all others connect, and the work of an operation
// runs on rank 0's stream. Each operation begins with a header from every member: if members disagree, where NCCL would
// hang or corrupt data, all of them get ncclInvalidUsage. A failed member stays in its operation until it aborts, as in
// NCCL's kernels. send and recv exist only between two ranks, matched in order. Those of a group are one operation, in
// which every member has to take part; of other operations groups are only counted. Buffers, 64 KiB a channel, are
// allocated on the GPU when members come together, and again when two connect.
//
// MS_EMULATED_NCCL_COUNTS  the process says at its end how many operations it issued, and how many threads NCCL made
// for
//     them: one for each call on a communicator that does not block (ncclGroupEndInternal() in group.cc, NCCL 2.28)
// MS_EMULATED_NCCL_REGISTERS_NOTHING  no memory can be registered
// MS_EMULATED_NCCL_ONLY_REGISTERED  groups refuse memory that is not registered, except for single numbers and in
// groups
//     of 4 channels: the world, and those that share an embedding
// MS_EMULATED_NCCL_ABORT_HANGS  aborting a communicator never ends
// MS_EMULATED_NCCL_DEREGISTER_WAITS  deregistering memory ends only if the communicator is aborted: a peer is stopped
// MS_EMULATED_NCCL_HANG  the operation of this number, from 1 over all communicators of the process, never begins
// MS_EMULATED_NCCL_CONNECT_HANGS  the connection of this number of the process, from 1 on, never comes about
// MS_EMULATED_NCCL_DIES  the process is killed in the operation of this number, counted like that
// MS_EMULATED_NCCL_STOPS  the process is stopped in the operation of this number, counted like that
// MS_EMULATED_NCCL_SLOW  A-B@BYTES: sends and receives between these two ranks of mpirun's, or GPUs where ranks are
//     threads, carry so many bytes a second; A@BYTES: those of this one
// MS_EMULATED_NCCL_NET_SLOW  likewise, where NCCL_P2P_DISABLE and NCCL_SHM_DISABLE leave only the network
// MS_EMULATED_NCCL_NO_NET  there is no network: where those two are set, nobody can join
// MS_EMULATED_NCCL_WRONG  the first word that this rank, or GPU, sends another one in a transfer is wrong
// MS_EMULATED_NCCL_REFUSES  N@RANK: operation N, counted like that, of this rank of mpirun's is refused; if the thread
//     issues another one, the process ends
#include <nccl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "nccl_member.h"
#include "nccl_reduce.h"
#include "stream.h"

namespace {

using namespace ms::emulated::nccl;

// The reason of the last refusal, for callers without a communicator.
thread_local const char* last_refusal = "";
ncclResult_t refuse(ncclResult_t code, const char* why) {
  last_refusal = why;
  return code;
}

// Memory of ncclMemAlloc().
class Allocated {
 public:
  void insert(void* data) {
    const std::lock_guard lock(mutex_);
    all_.insert(data);
  }
  std::size_t erase(void* data) {
    const std::lock_guard lock(mutex_);
    return all_.erase(data);
  }
  std::size_t count(void* data) {
    const std::lock_guard lock(mutex_);
    return all_.count(data);
  }

 private:
  std::mutex mutex_;
  std::set<void*> all_;
} allocated;

struct Counts {
  std::atomic<std::int64_t> operations = 0, threads = 0;
  ~Counts() {
    if (std::getenv("MS_EMULATED_NCCL_COUNTS") == nullptr) return;
    std::fprintf(stderr, "emulated NCCL: %lld operations, %lld threads for them\n", static_cast<long long>(operations),
                 static_cast<long long>(threads));
  }
} counts;

thread_local int group_depth = 0;
thread_local struct {
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  std::vector<Transfer> transfers = {};
} group;
thread_local bool call_failed = false;

std::int64_t number_in(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? 0 : std::atoll(text);
}
bool refuses(std::int64_t number) {
  const char* text = std::getenv("MS_EMULATED_NCCL_REFUSES");
  const char* at = text == nullptr ? nullptr : std::strchr(text, '@');
  return at != nullptr && std::atoll(text) == number && std::atoll(at + 1) == number_in("OMPI_COMM_WORLD_RANK");
}

}  // namespace

struct ncclComm {
  static constexpr int kMostGpus = 64;
  static inline std::array<std::atomic<int>, kMostGpus> all_channels{};  // of the process, by GPU
  std::shared_ptr<ms::emulated::nccl::Member> member;                    // work on streams may outlive the communicator
  int gpu = 0, channels = 0;
  std::map<const std::byte*, std::size_t> registered = {};
  std::vector<void*> buffers = {};
  std::atomic<bool> aborts = false, deregisters = false;

  ncclComm(std::shared_ptr<ms::emulated::nccl::Member> of, int with_channels)
      : member(std::move(of)), channels(with_channels) {
    cudaGetDevice(&gpu);
    all_channels[static_cast<std::size_t>(gpu)] += channels;
  }
  ncclComm(const ncclComm&) = delete;
  ncclComm& operator=(const ncclComm&) = delete;
  ~ncclComm() {
    for (void* buffer : buffers) cudaFreeAsync(buffer, nullptr);
    all_channels[static_cast<std::size_t>(gpu)] -= channels;
  }
  // Blocks that wait for peers occupy their multiprocessor.
  bool fits() const {
    int processors = 0;
    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, gpu);
    return all_channels[static_cast<std::size_t>(gpu)] <= processors;
  }
  bool take_buffers() {
    constexpr std::size_t kChannel = 64 << 10;
    void* buffer = nullptr;
    if (cudaMalloc(&buffer, kChannel * static_cast<std::size_t>(channels)) != cudaSuccess) return false;
    buffers.push_back(buffer);
    return true;
  }
  bool has_registered(const void* data) const {
    const auto* at = static_cast<const std::byte*>(data);
    const auto above = registered.upper_bound(at);
    return above != registered.begin() && at < std::prev(above)->first + std::prev(above)->second;
  }
};

namespace {

ncclResult_t issue(ncclComm_t comm, cudaStream_t stream, Header header, const void* in, void* out,
                   std::vector<Transfer> transfers = {}) {
  if (call_failed) std::abort();
  if (comm == nullptr) return refuse(ncclInvalidArgument, "no communicator");
  const auto member = comm->member;
  if (size_of(header.type) == 0 || (header.reduce != ncclSum && header.reduce != ncclMax))
    return refuse(ncclInvalidArgument, "a type or a reduction that is not emulated");
  if (header.root < 0 || header.root >= member->size()) return refuse(ncclInvalidArgument, "no such rank");
  const bool is_root = header.root == member->rank(), sends = header.kind == Kind::transfer && is_root;
  if (transfers.empty() && ((in == nullptr && (!header.has_root() || is_root)) || (out == nullptr && !sends)))
    return refuse(ncclInvalidArgument, "no buffer");
  // NCCL requires that all members pass registered memory, or none, and does not check.
  header.registered = comm->has_registered(in == nullptr ? out : in) ? 1 : 0;
  if (in != nullptr && out != nullptr && comm->has_registered(in) != comm->has_registered(out))
    return refuse(ncclInvalidUsage, "one buffer is registered, the other is not");
  constexpr int kNarrow = 4;
  if (header.registered == 0 && header.count > 1 && comm->channels != kNarrow &&
      std::getenv("MS_EMULATED_NCCL_ONLY_REGISTERED") != nullptr)
    return refuse(ncclInvalidUsage, "memory that is not registered");
  const ncclResult_t state = member->state();
  if (state == ncclInProgress) return refuse(ncclInvalidArgument, "the communicator is not ready");
  if (state != ncclSuccess || header.count == 0) return state;
  static std::atomic<std::int64_t> operations = 0;
  const std::int64_t number = ++operations;
  if (refuses(number)) {
    call_failed = true;
    return refuse(ncclInternalError, "it was to be refused");
  }
  if (number == number_in("MS_EMULATED_NCCL_DIES")) ::kill(::getpid(), SIGKILL);
  if (number == number_in("MS_EMULATED_NCCL_STOPS")) ::kill(::getpid(), SIGSTOP);
  header.sequence = member->begin();
  const Operation operation{header, in, out, number == number_in("MS_EMULATED_NCCL_HANG"), std::move(transfers)};
  const auto run = [member, operation, stream] {
    ms::emulated::on_stream(stream, [member, operation] { member->run(operation); });
  };
  counts.operations += 1;
  counts.threads += member->blocks() ? 0 : 1;
  if (header.kind == Kind::transfer && member->connects()) {
    if (!comm->take_buffers()) return refuse(ncclUnhandledCudaError, "no memory for buffers");
    if (!member->blocks()) {
      member->connect_in_background(run);
      return ncclInProgress;
    }
    static std::atomic<std::int64_t> connections = 0;
    member->connect(++connections == number_in("MS_EMULATED_NCCL_CONNECT_HANGS"));
    if (const ncclResult_t now = member->state(); now != ncclSuccess) return refuse(now, "the peer cannot be reached");
  }
  run();
  return ncclSuccess;
}
ncclResult_t transfer(ncclComm_t comm, cudaStream_t stream, std::size_t count, ncclDataType_t type, int peer,
                      const void* in, void* out) {
  if (comm == nullptr) return refuse(ncclInvalidArgument, "no communicator");
  if (group_depth > 0) {
    if (peer < 0 || peer >= comm->member->size()) return refuse(ncclInvalidArgument, "no such peer");
    if (!group.transfers.empty() && (group.comm != comm || group.stream != stream))
      return refuse(ncclInvalidUsage, "a group is emulated on one communicator and stream only");
    group.comm = comm, group.stream = stream;
    void* const data = in == nullptr ? out : const_cast<void*>(in);
    group.transfers.push_back({in != nullptr, peer, count * size_of(type), static_cast<std::byte*>(data)});
    return ncclSuccess;
  }
  if (comm->member->size() != 2) return refuse(ncclInvalidUsage, "send and recv are emulated between two ranks only");
  if (peer != 1 - comm->member->rank()) return refuse(ncclInvalidArgument, "no such peer");
  return issue(comm, stream, {0, count, Kind::transfer, type, ncclSum, in == nullptr ? peer : 1 - peer}, in, out);
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t result) {
  constexpr const char* kTexts[] = {"no error",
                                    "unhandled cuda error",
                                    "unhandled system error",
                                    "internal error",
                                    "invalid argument",
                                    "invalid usage",
                                    "remote process exited or there was a network error",
                                    "operation in progress"};
  return result >= 0 && result < ncclNumResults ? kTexts[result] : "unknown result code";
}
const char* ncclGetLastError(ncclComm_t comm) {
  const char* text = comm == nullptr ? nullptr : comm->member->error_text();
  return text == nullptr ? last_refusal : text;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const std::string name = ms::emulated::nccl::listen();
  if (name.empty()) return refuse(ncclSystemError, "no socket to listen at");
  *id = {};
  std::memcpy(id->internal, name.data(), name.size());
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank, ncclConfig_t* config) {
  *comm = nullptr;
  const ncclConfig_t usual = NCCL_CONFIG_INITIALIZER;
  if (size < 1 || rank < 0 || rank >= size) return refuse(ncclInvalidArgument, "no such rank");
  if (config != nullptr && (config->magic != usual.magic || config->size != usual.size))
    return refuse(ncclInvalidArgument, "a configuration that was not initialized");
  const std::string name(id.internal, ::strnlen(id.internal, 100));
  if (name.empty()) return refuse(ncclInvalidArgument, "not a unique id");
  const bool blocks = config == nullptr || config->blocking != 0;
  constexpr int kUsualChannels = 32;
  const int most = config == nullptr || config->maxCTAs == NCCL_CONFIG_UNDEF_INT ? kUsualChannels : config->maxCTAs;
  if (most < 1) return refuse(ncclInvalidArgument, "a limit of no channels");
  auto made = std::make_unique<ncclComm>(std::make_shared<Member>(rank, size, blocks), most);
  if (!made->fits()) return refuse(ncclInvalidUsage, "more channels than multiprocessors");
  if (!made->take_buffers()) return refuse(ncclUnhandledCudaError, "no memory for buffers");
  if (!blocks) {
    made->member->join_in_background(name);
    *comm = made.release();
    return ncclInProgress;
  }
  made->member->join(name);
  const ncclResult_t code = made->member->state();
  if (code != ncclSuccess) return refuse(code, "the members did not come together");
  *comm = made.release();
  return code;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  if (comm == nullptr || error == nullptr) return refuse(ncclInvalidArgument, "no communicator");
  *error = comm->member->state();
  return ncclSuccess;
}
// Asks the owner of a non-blocking communicator to wait until its state is no longer ncclInProgress.
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  if (comm == nullptr) return refuse(ncclInvalidArgument, "no communicator");
  if (comm->member->state() != ncclSuccess) return refuse(ncclInvalidUsage, "the communicator is not ready");
  comm->member->finalize();
  return comm->member->state();
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (comm != nullptr) comm->member->leave();
  delete comm;
  return ncclSuccess;
}
// Of a communicator that blocks, while another thread is in a call on it.
ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags) {
  if (comm == nullptr || flags != NCCL_REVOKE_DEFAULT || !comm->member->blocks())
    return refuse(ncclInvalidArgument, "a revocation that is not emulated");
  comm->member->revoke();
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (std::getenv("MS_EMULATED_NCCL_ABORT_HANGS") != nullptr) pause();
  if (comm != nullptr && comm->deregisters) {
    std::fprintf(stderr, "emulated NCCL: an abort ends a deregistration\n");
    comm->aborts = true;
    comm->aborts.notify_all();
    comm->deregisters.wait(true);
  }
  if (comm != nullptr && !comm->registered.empty())
    std::abort();  // NCCL would use registrations that it has already freed
  if (comm != nullptr) comm->member->abort();
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclMemAlloc(void** data, std::size_t size) {
  if (cudaMalloc(data, size) != cudaSuccess) return refuse(ncclUnhandledCudaError, "no memory");
  allocated.insert(*data);
  return ncclSuccess;
}
ncclResult_t ncclMemFree(void* data) {
  if (data == nullptr) return ncclSuccess;
  if (allocated.erase(data) == 0) return refuse(ncclInvalidArgument, "not NCCL's memory");
  return cudaFree(data) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}
ncclResult_t ncclCommRegister(const ncclComm_t comm, void* data, std::size_t size, void** handle) {
  if (comm == nullptr || data == nullptr || size == 0) return refuse(ncclInvalidArgument, "nothing to register");
  // NCCL registers other memory only if there is a network, and otherwise ignores it silently.
  if (allocated.count(data) == 0 || std::getenv("MS_EMULATED_NCCL_REGISTERS_NOTHING") != nullptr)
    return refuse(ncclInvalidUsage, "memory that cannot be registered");
  comm->registered[static_cast<const std::byte*>(data)] = size;
  *handle = data;
  return ncclSuccess;
}
ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* handle) {
  if (comm == nullptr || comm->registered.erase(static_cast<const std::byte*>(handle)) == 0)
    return refuse(ncclInvalidArgument, "what was not registered");
  if (std::getenv("MS_EMULATED_NCCL_DEREGISTER_WAITS") != nullptr) {
    comm->deregisters = true;
    comm->aborts.wait(false);
    comm->deregisters = false;
    comm->deregisters.notify_all();
  }
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclRedOp_t reduce,
                           ncclComm_t comm, cudaStream_t stream) {
  return issue(comm, stream, {0, count, Kind::all_reduce, type, reduce, 0}, in, out);
}
ncclResult_t ncclReduceScatter(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclRedOp_t reduce,
                               ncclComm_t comm, cudaStream_t stream) {
  return issue(comm, stream, {0, count, Kind::reduce_scatter, type, reduce, 0}, in, out);
}
ncclResult_t ncclAllGather(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return issue(comm, stream, {0, count, Kind::all_gather, type, ncclSum, 0}, in, out);
}
ncclResult_t ncclBroadcast(const void* in, void* out, std::size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  return issue(comm, stream, {0, count, Kind::broadcast, type, ncclSum, root}, in, out);
}
ncclResult_t ncclSend(const void* in, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return transfer(comm, stream, count, type, peer, in, nullptr);
}
ncclResult_t ncclRecv(void* out, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return transfer(comm, stream, count, type, peer, nullptr, out);
}

ncclResult_t ncclGroupStart() {
  ++group_depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (group_depth == 0) return refuse(ncclInvalidUsage, "no group has begun");
  if (--group_depth > 0 || group.transfers.empty()) return ncclSuccess;
  return issue(group.comm, group.stream, {0, 1, Kind::exchange, ncclUint8, ncclSum, 0}, nullptr, nullptr,
               std::exchange(group.transfers, {}));
}

}  // extern "C"
