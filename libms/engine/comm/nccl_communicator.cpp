// Communicators over NCCL: translates operations into NCCL calls and watches those in progress. Implements
// nccl_plugin.h's Nccl; compiled into libms_cuda.so.
#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>
#include <optional>
#include <thread>
#include <tuple>
#include <vector>

#include "base/text.h"
#include "comm/blocking_calls.h"
#include "comm/in_flight.h"
#include "comm/nccl_plugin.h"
#include "comm/row_pieces.h"
#include "tensor/cuda/channels.h"
#include "tensor/cuda/cuda_check.h"
#include "tensor/cuda/cuda_device.h"
#include "tensor/cuda/owned_memory.h"

namespace ms::comm {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr auto kLookPeriod = 5ms;  // between checks of operations in progress; well below any deadline
// NCCL reports that a peer is lost, not which. The service detects dead processes of this node and receives stop
// messages from others: it has this long to name the rank. mpirun ends survivors 1 s after a rank's death.
constexpr auto kBlameGrace = 800ms;
constexpr auto kDeregisters = 500ms;  // takes microseconds unless a peer of this node is stopped

ncclDataType_t type_of(tensor::DType dtype) {
  switch (dtype) {
    case tensor::DType::f32: return ncclFloat32;
    case tensor::DType::bf16: return ncclBfloat16;
    case tensor::DType::f64: return ncclFloat64;
    case tensor::DType::i32: return ncclInt32;
  }
  return ncclFloat32;
}

// An NCCL communicator, shared by the threads that issue to it and the thread that monitors it.
struct OpenComm {
  std::shared_ptr<const Group> group;
  int member = 0;
  int gpu = 0;
  std::shared_ptr<tensor::DeviceFailure> failure;  // of its stream's device
  // NCCL's calls block, and the monitor revokes those that take too long: on a communicator that does not block, NCCL
  // makes a thread for each (ncclGroupEndInternal() in group.cc, NCCL 2.28 to 2.31).
  BlockingCalls calls;
  Issuing issuing;                    // by one of these calls
  std::atomic<bool> retired = false;  // a peer may be gone
  std::mutex mutex;                   // guards what follows
  ncclComm_t comm = nullptr;          // null: aborted
  void* registered = nullptr;         // NCCL's handle of the registered buffer; may stay null if NCCL cannot use it
  std::deque<InFlight> in_flight;
  std::optional<Clock::time_point> lost_since;  // when NCCL reported a lost peer
};

// NCCL's abort frees first, and deregisters what is left with what it has freed (commFree(), NCCL 2.28 to 2.30). So
// memory is deregistered before, which asks processes of the node, and one that is stopped never answers: the abort,
// whose first act is a flag that ends all waiting, then follows anyway. The caller holds the mutex.
std::jthread deregister_before_abort(OpenComm& open) {
  if (open.registered == nullptr) return {};
  std::packaged_task<void()> task(
      [comm = open.comm, memory = std::exchange(open.registered, nullptr)] { ncclCommDeregister(comm, memory); });
  const std::future<void> is_done = task.get_future();
  std::jthread thread(std::move(task));
  is_done.wait_for(kDeregisters);
  return thread;
}

bool is_of_peers(ncclResult_t code) { return code == ncclRemoteError || code == ncclSystemError; }

Error nccl_error(ncclResult_t code, const OpenComm& open, const std::string& what) {
  const char* last = open.comm == nullptr ? nullptr : ncclGetLastError(open.comm);
  std::string text = fmt::format("{}: NCCL: {}", what, ncclGetErrorString(code));
  if (last != nullptr && *last != '\0') text += fmt::format(" ({})", last);
  // If NCCL could not allocate buffers, it reports only that a CUDA call failed.
  constexpr std::size_t kBuffers = std::size_t{512} << 20;
  std::size_t free = 0, total = 0;
  if (code == ncclUnhandledCudaError && cudaMemGetInfo(&free, &total) == cudaSuccess && free < kBuffers) {
    return user_error(
        "tensor.memory",
        fmt::format("{}; probably out of memory: {} of the GPU are free", text, format_size(static_cast<double>(free))),
        "NCCL allocates before the run's tensors: nvidia-smi shows what else uses the GPU");
  }
  const bool is_ours = code == ncclInvalidUsage || code == ncclInvalidArgument;
  const Blame blame = is_ours ? Blame::bug : is_of_peers(code) ? Blame::peer : Blame::gpu;
  Error error("comm.nccl", blame, text, "NCCL_DEBUG=WARN prints details");
  if (is_of_peers(code) && open.group->size() == 2)
    error = error.with_rank(open.group->ranks[static_cast<std::size_t>(1 - open.member)]);
  return error;
}

class NcclProcess final : public Nccl {
 public:
  NcclProcess(std::shared_ptr<ExchangeService> service, Store& store, std::chrono::milliseconds deadline)
      : service_(std::move(service)), store_(store), deadline_(deadline) {
    thread_ = std::jthread([this](const std::stop_token& stop) { monitor(stop); });
  }
  ~NcclProcess() override {
    close();
    abort_all(all_);
  }

  std::unique_ptr<Communicator> open(const Group& group, tensor::Stream& stream) override;
  void close() override {
    thread_.request_stop();
    if (thread_.joinable()) thread_.join();
  }
  ExchangeService& service() { return *service_; }
  void abort_retired(const std::shared_ptr<OpenComm>& open) {
    if (service_->cause().stopped()) return;  // the monitor aborts them all
    if (const std::lock_guard lock(open->mutex); true) advance(open->in_flight, *service_);  // all is done
    abort_all({open});
    const std::lock_guard lock(mutex_);
    std::erase(all_, open);
  }
  // Issues an operation as call() does. While that takes long, the service watches its deadline.
  template <class F>
  void issue(OpenComm& open, InFlight& one, F&& f) {
    Issuing::Call issue(open.issuing, one.exchange);
    call(open, one.exchange->what(), std::forward<F>(f));
    one.begun = issue.done();
  }
  // Makes a call on the communicator, whose mutex the caller holds. Throws what became of it, if that is no success.
  template <class F>
  void call(OpenComm& open, const std::string& what, F&& f) {
    const std::optional<ncclResult_t> code = open.calls.run(
        what, [comm = open.comm] { ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT); }, std::forward<F>(f));
    if (!code) throw service_->cause().error_for(service_->rank());
    if (*code != ncclSuccess) refused(*code, open, what);
  }

 private:
  [[noreturn]] void refused(ncclResult_t code, const OpenComm& open, const std::string& what);
  void join(OpenComm& open);
  void monitor(const std::stop_token& stop);  // the thread's
  void check(OpenComm& open);
  // Aborts all at the same time: an abort may wait for the whole GPU, and so for the kernel of another communicator
  // that still waits for its peers.
  static void abort_all(const std::vector<std::shared_ptr<OpenComm>>& all) {
    std::vector<std::jthread> threads;
    for (const auto& open : all) {
      threads.emplace_back([open] {
        cudaSetDevice(open->gpu);
        open->calls.end();
        const std::lock_guard lock(open->mutex);
        if (open->comm == nullptr) return;
        const std::jthread deregisters = deregister_before_abort(*open);
        ncclCommAbort(std::exchange(open->comm, nullptr));
      });
    }
  }

  const std::shared_ptr<ExchangeService> service_;
  Store& store_;
  const std::chrono::milliseconds deadline_;
  std::mutex mutex_;  // guards all_
  std::condition_variable_any wake_;
  std::vector<std::shared_ptr<OpenComm>> all_;
  std::jthread thread_;
};

// Allocates memory from NCCL, which the other GPUs of the node can access.
std::unique_ptr<tensor::Memory> nccl_memory(int gpu, std::size_t bytes, const std::string& what) {
  tensor::check(cudaSetDevice(gpu), "taking the GPU");
  void* data = nullptr;
  if (const ncclResult_t code = ncclMemAlloc(&data, bytes); code != ncclSuccess) {
    constexpr std::size_t kPage = std::size_t{2} << 20;
    std::size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    const std::string text =
        fmt::format("{} of NCCL's memory for {}, with {} free", format_size(static_cast<double>(bytes)), what,
                    format_size(static_cast<double>(free)));
    if (bytes + kPage > free) throw tensor::cuda_error(cudaErrorMemoryAllocation, text);
    throw Error("comm.nccl", Blame::gpu, fmt::format("{}: {}", text, ncclGetErrorString(code)),
                "NCCL_DEBUG=WARN prints details; run.nccl_register = false avoids this allocation");
  }
  return tensor::cleared(std::make_unique<tensor::OwnedMemory>(data, bytes, [](void* at) { ncclMemFree(at); }));
}

class NcclCommunicator final : public Communicator, public Retiring {
 public:
  NcclCommunicator(NcclProcess& process, std::shared_ptr<OpenComm> open, int global_rank, tensor::CudaStream& stream,
                   std::unique_ptr<tensor::Memory> word)
      : Communicator(*open->group, global_rank, stream),
        process_(process),
        open_(std::move(open)),
        issued_(process.service().issue_counts().counter(group().id)),
        stream_(stream),
        word_(std::move(word)) {}
  ~NcclCommunicator() override {
    if (open_->retired) process_.abort_retired(open_);
    const std::lock_guard lock(open_->mutex);
    if (open_->comm != nullptr && open_->registered != nullptr && !process_.service().cause().stopped())
      ncclCommDeregister(open_->comm, std::exchange(open_->registered, nullptr));  // no operation is in progress
  }

  std::unique_ptr<tensor::Memory> allocate(std::size_t bytes, const std::string& what) override {
    return nccl_memory(open_->gpu, bytes, what);
  }
  void register_memory(const tensor::Memory& memory) override {
    const std::lock_guard lock(open_->mutex);
    if (open_->comm == nullptr) return;  // aborted: the world has stopped
    process_.call(*open_, "registering memory for group " + group().name, [&] {
      return ncclCommRegister(open_->comm, memory.data(), memory.size_bytes(), &open_->registered);
    });
  }
  void retire() override { open_->retired = true; }
  // NCCL connects two ranks in their first transfer, and the call waits until both have issued it: the hosts of a ring,
  // each of which sends before it receives, would wait for each other.
  void connect() override {
    const Tensor word{word_->data(), 1, 1, 1, tensor::DType::f32};
    rank() == 0 ? send(word) : recv(word);
    stream().synchronize();
  }

 protected:
  void do_issue(const Request& request) override {
    issued_->store(request.sequence + 1, std::memory_order_relaxed);
    const std::lock_guard lock(open_->mutex);
    if (process_.service().cause().stopped()) {  // an operation that is not issued must not look complete
      open_->failure->set(process_.service().cause().error_for(service_rank()));
      return;
    }
    if (open_->comm == nullptr) return;  // aborted: the device has failed
    InFlight one{.begin = stream_.point(), .exchange = exchange_with_all(request, open_->group, service_rank())};
    stream_.launch([&](cudaStream_t stream) {
      try {
        process_.issue(*open_, one, [&] { return call(request, stream); });
      } catch (const Error& error) {
        process_.service().abort(error);  // at once, before this thread issues more
        throw;
      }
    });
    one.end = stream_.point();
    open_->in_flight.push_back(std::move(one));
  }

 private:
  ncclResult_t call(const Request& request, cudaStream_t stream) const {
    const Tensor &in = request.in, &out = request.out;
    const auto n = static_cast<std::size_t>(in ? in.numel() : out.numel());
    const ncclDataType_t type = type_of(in ? in.dtype : out.dtype);
    const ncclRedOp_t op = request.reduce == ReduceKind::max ? ncclMax : ncclSum;
    const ncclComm_t comm = open_->comm;
    switch (request.kind) {
      case OpKind::all_reduce: return ncclAllReduce(in.data, out.data, n, type, op, comm, stream);
      case OpKind::reduce_scatter:
        return ncclReduceScatter(in.data, out.data, static_cast<std::size_t>(out.numel()), type, op, comm, stream);
      case OpKind::all_gather: return ncclAllGather(in.data, out.data, n, type, comm, stream);
      case OpKind::broadcast: return ncclBroadcast(in.data, out.data, n, type, request.root, comm, stream);
      case OpKind::send: return ncclSend(in.data, n, type, 1 - rank(), comm, stream);
      case OpKind::recv: return ncclRecv(out.data, n, type, 1 - rank(), comm, stream);
      case OpKind::all_to_all: return exchange_rows(request, stream);
      case OpKind::barrier: return ncclAllReduce(word_->data(), word_->data(), 1, ncclFloat32, ncclSum, comm, stream);
    }
    return ncclInternalError;
  }
  // NCCL takes sizes from the host.
  ncclResult_t exchange_rows(const Request& request, cudaStream_t stream) const {
    const std::vector<std::int32_t> offsets = stream_.integers(request.offsets);
    ncclResult_t result = ncclGroupStart();
    each_transfer(request, offsets.data(), size(), rank(), [&](bool is_sent, int peer, std::byte* data, std::size_t n) {
      result = std::max(result, is_sent ? ncclSend(data, n, ncclUint8, peer, open_->comm, stream)
                                        : ncclRecv(data, n, ncclUint8, peer, open_->comm, stream));
    });
    return std::max(result, ncclGroupEnd());
  }
  int service_rank() const { return process_.service().rank(); }

  NcclProcess& process_;
  std::shared_ptr<OpenComm> open_;
  std::shared_ptr<IssueCounts::Counter> issued_;
  tensor::CudaStream& stream_;
  std::unique_ptr<tensor::Memory> word_;  // the operand of barriers
};

std::unique_ptr<Communicator> NcclProcess::open(const Group& group, tensor::Stream& stream) {
  auto* cuda = dynamic_cast<tensor::CudaStream*>(&stream);
  MS_ASSERT(cuda, "group {} opened on stream {}, which is not of a GPU of its own", group.name, stream.name());
  auto open = std::make_shared<OpenComm>();
  open->group = std::make_shared<const Group>(group);
  open->member = group.index_of(service_->rank());
  open->gpu = cuda->gpu();
  open->failure = cuda->failure();
  {
    const std::lock_guard lock(mutex_);
    all_.push_back(open);
  }
  {
    const std::lock_guard lock(open->mutex);  // keeps abort_all() away until the communicator exists
    join(*open);
  }
  return std::make_unique<NcclCommunicator>(*this, open, service_->rank(), *cuda,
                                            stream.device().allocate(sizeof(float), "a barrier"));
}

void NcclProcess::join(OpenComm& open) {
  const std::string key = fmt::format("nccl {}", open.group->id);
  const std::string what = fmt::format("joining group {}", open.group->name);
  const Joining joining(*open.group, what, *service_);
  ncclUniqueId id{};
  if (open.member == 0) {
    if (const ncclResult_t code = ncclGetUniqueId(&id); code != ncclSuccess) throw nccl_error(code, open, what);
    store_.put(key, {id.internal, sizeof id.internal});
    store_.commit();
  } else {
    // The service's deadline ends this wait, and tells who is at fault.
    const std::string value = store_.get(open.group->ranks.front(), key, 2 * deadline_);
    MS_ASSERT(value.size() == sizeof id.internal, "NCCL's id of {} bytes", value.size());
    std::copy(value.begin(), value.end(), id.internal);
  }
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  // NCCL_MAX_CTAS overrides it. Gathers by copy engines, which need no channel (NCCL_CTA_POLICY_ZERO on symmetric
  // windows, from NCCL 2.28 on), are not used.
  if (open.group->width > 0) config.maxCTAs = tensor::channels_on(open.gpu, open.group->width);
  config.blocking = 1;
  // There is no communicator yet to revoke: where other members do not come, the thread stays behind in a process that
  // is about to end.
  auto joined = in_thread([id, config, gpu = open.gpu, size = open.group->size(), me = open.member]() mutable {
    ncclComm_t comm = nullptr;
    cudaSetDevice(gpu);
    const ncclResult_t code = ncclCommInitRankConfig(&comm, size, id, me, &config);
    return std::pair(code, comm);
  });
  while (joined.wait_for(kLookPeriod) != std::future_status::ready) {
    if (service_->cause().stopped()) throw service_->cause().error_for(service_->rank());
  }
  ncclResult_t code = ncclSuccess;
  std::tie(code, open.comm) = joined.get();
  if (code != ncclSuccess) refused(code, open, what);
}

void NcclProcess::refused(ncclResult_t code, const OpenComm& open, const std::string& what) {
  const auto end = Clock::now() + kBlameGrace;
  while (is_of_peers(code) && !service_->cause().stopped() && Clock::now() < end)
    std::this_thread::sleep_for(kLookPeriod);
  if (service_->cause().stopped()) throw service_->cause().error_for(service_->rank());
  throw nccl_error(code, open, what);
}

void NcclProcess::monitor(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    std::vector<std::shared_ptr<OpenComm>> all;
    {
      std::unique_lock lock(mutex_);
      wake_.wait_for(lock, stop, kLookPeriod, [] { return false; });
      all = all_;
    }
    if (service_->cause().stopped()) {
      for (const auto& open : all) open->failure->set(service_->cause().error_for(service_->rank()));
      abort_all(all);
    } else {
      for (const auto& open : all) check(*open);
    }
  }
}

void NcclProcess::check(OpenComm& open) {
  if (const auto begun = open.calls.in_progress(); begun && Clock::now() - begun->first > kLookPeriod)
    open.issuing.watch(*service_, *begun, deadline_);
  // Locked while a call waits for NCCL: the other communicators must not wait for that.
  const std::unique_lock lock(open.mutex, std::try_to_lock);
  if (!lock || open.comm == nullptr) return;
  cudaSetDevice(open.gpu);  // if it fails, so do the users of the GPU
  ncclResult_t state = ncclSuccess;
  if (const ncclResult_t asked = ncclCommGetAsyncError(open.comm, &state); asked != ncclSuccess) state = asked;
  if (state != ncclSuccess && !open.retired) {
    if (is_of_peers(state)) {
      if (!open.lost_since) open.lost_since = Clock::now();
      if (Clock::now() - *open.lost_since < kBlameGrace) return;
    }
    const std::string what = open.in_flight.empty() ? "group " + open.group->name
                                                    : describe(open.in_flight.front().exchange->request, *open.group);
    service_->abort(nccl_error(state, open, what));
    return;
  }
  advance(open.in_flight, *service_);
}

}  // namespace
}  // namespace ms::comm

extern "C" __attribute__((visibility("default"))) const ms::comm::NcclPlugin* ms_nccl_plugin() {
  using namespace ms::comm;
  static constexpr NcclPlugin kPlugin{.make = [](std::shared_ptr<ExchangeService> service, Store& store,
                                                 std::chrono::milliseconds deadline) -> std::unique_ptr<Nccl> {
    return std::make_unique<NcclProcess>(std::move(service), store, deadline);
  }};
  return &kPlugin;
}
