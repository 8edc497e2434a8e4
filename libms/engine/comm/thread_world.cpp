// One rank's view of the hub (thread_hub.cpp): its world, its communicators, and their tasks. Also implements
// ThreadHub, which hides the hub's implementation.
#include "comm/thread_world.h"

#include <numeric>

#include "comm/nccl_plugin.h"
#include "comm/process.h"
#include "comm/self_communicator.h"
#include "comm/thread_hub.h"

namespace ms::comm {
namespace {

class ThreadTask final : public tensor::AsyncTask {
 public:
  ThreadTask(std::shared_ptr<ThreadHub::Impl> hub, std::shared_ptr<GroupState> state, int member,
             const Request& request, tensor::PeerMemory& memory)
      : hub_(std::move(hub)), state_(std::move(state)), member_(member), request_(request), memory_(memory) {}

  bool step(const tensor::CpuWaker& waker) override {
    if (!rendezvous_) rendezvous_ = hub_->arrive(*state_, member_, request_, waker, memory_);
    if (!worked_) worked_ = hub_->proceed(*state_, *rendezvous_, member_, finished_, memory_);
    return worked_ && hub_->delivered(*rendezvous_, waker);
  }
  void cancel(const Error& cause) noexcept override {
    hub_->abort(state_->group.ranks[static_cast<std::size_t>(member_)], cause);
  }

 private:
  std::shared_ptr<ThreadHub::Impl> hub_;
  std::shared_ptr<GroupState> state_;
  int member_;
  Request request_;
  tensor::PeerMemory& memory_;  // of the stream that runs this task
  std::shared_ptr<Rendezvous> rendezvous_;
  int finished_ = 0;  // phases
  bool worked_ = false;
};

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<ThreadHub::Impl> hub, const Group& group, int global_rank,
                     tensor::TaskStream& stream)
      : Communicator(group, global_rank, stream),
        hub_(std::move(hub)),
        state_(hub_->group(group)),
        issued_(hub_->issue_counts(global_rank).counter(group.id)),
        stream_(stream) {}

 protected:
  void do_issue(const Request& request) override {
    issued_->store(request.sequence + 1, std::memory_order_relaxed);
    stream_.submit_async(std::make_shared<ThreadTask>(hub_, state_, rank(), request, stream_.peer_memory()));
  }

 private:
  std::shared_ptr<ThreadHub::Impl> hub_;
  std::shared_ptr<GroupState> state_;
  std::shared_ptr<IssueCounts::Counter> issued_;
  tensor::TaskStream& stream_;
};

// The hub, as NCCL's communicators of one rank use it.
class HubService final : public ExchangeService {
 public:
  HubService(std::shared_ptr<ThreadHub::Impl> hub, int rank) : hub_(std::move(hub)), rank_(rank) {}
  int rank() const override { return rank_; }
  void post(std::shared_ptr<Exchange> exchange) override {
    MS_ASSERT(false, "{} is to be carried by the hub", exchange->what());
  }
  void watch(std::shared_ptr<Exchange> exchange) override { hub_->watch(rank_, std::move(exchange)); }
  void abort(const Error& error) noexcept override { hub_->abort(rank_, error); }
  FirstCause& cause() override { return hub_->cause(); }
  IssueCounts& issue_counts() override { return hub_->issue_counts(rank_); }

 private:
  std::shared_ptr<ThreadHub::Impl> hub_;
  int rank_;
};

class ThreadWorld final : public World {
 public:
  ThreadWorld(std::shared_ptr<ThreadHub::Impl> hub, int rank)
      : hub_(std::move(hub)), rank_(rank), store_(rank, hub_->table(), [this](MemoryStore::Values values) {
          for (auto& [key, value] : values) hub_->table().post(rank_, std::move(key), std::move(value));
        }) {}
  ~ThreadWorld() override {
    if (hub_->cause().stopped()) static_cast<void>(nccl_.release());  // it may wait forever for lost peers
  }

  std::string_view kind() const override { return "threads"; }
  int rank() const override { return rank_; }
  int size() const override { return hub_->size(); }
  int ranks_on_node() const override { return hub_->size(); }
  std::string node(int) const override { return this_process().host; }
  std::vector<int> node_ranks() const override {
    std::vector<int> ranks(static_cast<std::size_t>(size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }
  Patience& patience() override { return hub_->patience(rank_); }
  Store& store() override { return store_; }
  std::unique_ptr<Communicator> open(const Group& group, tensor::Stream& stream) override {
    if (group.size() == 1) return std::make_unique<SelfCommunicator>(group, rank_, stream);
    auto* tasks = dynamic_cast<tensor::TaskStream*>(&stream);
    if (tasks == nullptr && stream.device().kind() == "cuda") {
      if (!nccl_) nccl_ = make_nccl(std::make_shared<HubService>(hub_, rank_), store_, patience().ceiling());
      return nccl_->open(group, stream);
    }
    MS_ASSERT(tasks, "group {} opened on stream {}, which does not run host tasks", group.name, stream.name());
    return std::make_unique<ThreadCommunicator>(hub_, group, rank_, *tasks);
  }
  void abort(const Error& cause) noexcept override { hub_->abort(rank_, cause); }
  std::optional<Cause> cause() const override { return hub_->cause().get(); }
  void before_stop(Witness witness) override { hub_->cause().before_stop(std::move(witness)); }
  void close() override {
    if (nccl_) nccl_->close();  // before other ranks abort theirs
    hub_->close(rank_);
  }

 private:
  std::shared_ptr<ThreadHub::Impl> hub_;
  int rank_;
  MemoryStore store_;
  std::unique_ptr<Nccl> nccl_;  // null: no group between GPUs was opened
};

}  // namespace

ThreadHub::ThreadHub(int size, std::chrono::milliseconds deadline, Link link)
    : impl_(std::make_shared<Impl>(size, deadline, link)) {
  MS_ASSERT(size > 0, "a world of {} ranks", size);
}
ThreadHub::~ThreadHub() = default;

std::unique_ptr<World> ThreadHub::world(int rank) {
  MS_ASSERT(rank >= 0 && rank < impl_->size(), "rank {} of a world of {}", rank, impl_->size());
  return std::make_unique<ThreadWorld>(impl_, rank);
}

}  // namespace ms::comm
