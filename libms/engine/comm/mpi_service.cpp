// The service thread that owns MPI. In the order of this file: starting; one iteration of the loop (take posted
// exchanges, test requests, receive control messages, check deadlines and peers, rest); stopping; methods that other
// threads call.
#include "comm/mpi_service.h"

#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>

#include <condition_variable>
#include <deque>
#include <future>
#include <thread>

#include "comm/deadline_monitor.h"
#include "comm/mpi_transport.h"
#include "comm/peer_watch.h"
#include "comm/roll_call.h"
#include "comm/store_pmix.h"
#include "slurm/launch.h"

namespace ms::comm {
namespace {

using std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr auto kStartCheckPeriod = 100ms;  // of who is missing while MPI starts
constexpr auto kStopNoticeLimit = 300ms;   // for sending the cause of a stop; a dead peer must not delay the exit
// How often the processes of this node are checked. mpirun ends the survivors 1 s after a rank died, and by then the
// verdict must be written.
constexpr auto kPeerCheckPeriod = 200ms;
constexpr auto kDeadlineCheckPeriod = 10ms;
constexpr auto kIdleRest = 3ms;   // when idle: the most by which a control message is late
constexpr auto kYieldFor = 50us;  // after progress, before sleeping
constexpr auto kShortestRest = 20us;
constexpr auto kLongestRest = 500us;

class Service final : public MpiService {
 public:
  explicit Service(std::chrono::milliseconds deadline)
      : patience_(deadline),
        start_deadline_(std::max(deadline, RollCall::kStartDeadline)),
        table_(cause_),
        deadlines_(patience_, mpi_->active(), watched_, issue_counts_, [this](int peer, const Question& question) {
          mpi_->send(peer, std::make_shared<const std::string>(question_message(question)));
        }) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const ProcessId& process(int rank) const override { return peers_.process(rank); }
  std::vector<int> node_ranks() const override { return peers_.node_ranks(); }
  KeyValueTable& table() override { return table_; }
  Patience& patience() override { return patience_; }
  FirstCause& cause() override { return cause_; }
  IssueCounts& issue_counts() override { return issue_counts_; }
  void post(std::shared_ptr<Exchange> exchange) override;
  void watch(std::shared_ptr<Exchange> exchange) override {
    const std::lock_guard lock(mutex_);
    watched_soon_.push_back(std::move(exchange));
  }
  void abort(const Error& error) noexcept override { stop_because(rank_, error); }
  void wait_until_notified() noexcept override;
  void publish(MemoryStore::Values values) override;
  void close() override;
  void shutdown() noexcept override;

  void launch(std::shared_ptr<Service> self);

 private:
  void init();
  void loop();
  bool take_posted();
  bool test_control();
  void hear(int from, std::string_view text);
  bool drain_control();
  void rest(bool progress);
  void stop_because(int rank, const Error& error) noexcept;
  void stop_mpi();
  void fail_all();

  Patience patience_;
  const std::chrono::milliseconds start_deadline_;
  FirstCause cause_;
  IssueCounts issue_counts_;
  KeyValueTable table_;
  std::thread thread_;
  std::promise<void> started_, thread_ended_;
  std::future<void> has_ended_ = thread_ended_.get_future();

  std::mutex mutex_;                      // guards what follows
  std::condition_variable wake_;          // of the service thread
  std::condition_variable notification_;  // wakes threads that called abort()
  std::deque<std::shared_ptr<Exchange>> posted_;
  std::deque<std::string> outgoing_;
  Exchanges watched_soon_;
  bool shutdown_ = false, finalize_ = false;
  bool notified_ = false;  // the stop message was sent to all peers that can be reached
  bool ended_ = false;     // the thread takes no more posts

  // Used by the service thread; other threads read the ranks and the constant part of peers_ once it has started.
  int rank_ = -1, size_ = 0;
  std::deque<std::shared_ptr<Exchange>> incoming_;  // taken, not yet begun
  const std::unique_ptr<MpiTransport> mpi_ = MpiTransport::make();
  Exchanges watched_;  // carried by another backend
  DeadlineMonitor deadlines_;
  PeerWatch peers_;
  bool mpi_stopped_ = false;
  steady_clock::time_point last_progress_, last_deadline_check_, last_peer_check_;
};

// Starting.

void Service::launch(std::shared_ptr<Service> self) {
  std::future<void> started = started_.get_future();
  // Before MPI starts, which uses PMIx too.
  const slurm::Launch launch = slurm::this_launch();
  const FirstCause none;
  const std::unique_ptr<PmixStore> roll_store = open_pmix_store(launch.rank, none);
  std::optional<RollCall> roll;
  if (roll_store) {
    const RollCall::Calls calls = RollCall::over(*roll_store);
    roll.emplace(launch.rank, launch.size, roll_store->ranks_on_node(), patience_.ceiling(), calls, steady_clock::now())
        .meet();
  }
  thread_ = std::thread([self = std::move(self)] {
    pthread_setname_np(pthread_self(), "ms-mpi");
    prctl(PR_SET_TIMERSLACK, 1000UL);  // ns, because the sleeps are short
    try {
      self->init();
      self->started_.set_value();
    } catch (...) {
      self->started_.set_exception(std::current_exception());
      self->thread_ended_.set_value();
      return;
    }
    self->loop();
    self->thread_ended_.set_value();
  });
  if (roll_store) {
    while (started.wait_for(kStartCheckPeriod) != std::future_status::ready) roll->check(steady_clock::now());
  } else if (started.wait_for(start_deadline_) != std::future_status::ready) {
    throw Error("comm.deadline", Blame::peer,
                fmt::format("MPI_Init has not returned after {:.1f} s",
                            std::chrono::duration<double>(start_deadline_).count()));
  }
  started.get();
  if (roll_store) roll->leave(), roll_store->close();
}

void Service::init() {
  MpiTransport::Started started = mpi_->start(start_deadline_);
  rank_ = started.rank;
  size_ = static_cast<int>(started.processes.size());
  peers_.start(rank_, std::move(started.processes));
  deadlines_.set_other_nodes(peers_.other_nodes());
}

// One iteration.

void Service::loop() {
  last_progress_ = steady_clock::now();
  while (true) {
    bool progress = false;
    try {
      if (!take_posted()) return;
      if (cause_.stopped()) {
        stop_mpi();
      } else {
        const bool exchanged = mpi_->test();
        const bool heard = test_control();
        const bool sent = mpi_->drop_finished_sends();
        progress = exchanged || heard || sent;
        const steady_clock::time_point now = steady_clock::now();
        if (progress) last_progress_ = now;
        if (now - last_deadline_check_ > kDeadlineCheckPeriod) {
          last_deadline_check_ = now;
          std::erase_if(watched_, [](const auto& one) { return one->state != Exchange::State::pending; });
          deadlines_.check(rank_, now);
        }
        if (now - last_peer_check_ > kPeerCheckPeriod) {
          last_peer_check_ = now;
          peers_.check(now, mpi_->active(), [this] { return drain_control(); });
        }
      }
    } catch (const Error& error) {
      stop_because(rank_, error);
      continue;
    }
    rest(progress);
  }
}

// Takes what other threads posted. Returns false when the thread must end.
bool Service::take_posted() {
  std::deque<std::string> outgoing;
  bool shutdown = false;
  {
    std::lock_guard lock(mutex_);
    incoming_.insert(incoming_.end(), posted_.begin(), posted_.end());
    posted_.clear();
    outgoing.swap(outgoing_);
    watched_.insert(watched_.end(), watched_soon_.begin(), watched_soon_.end());
    watched_soon_.clear();
    shutdown = shutdown_;
    ended_ = shutdown_ || finalize_;
  }
  if (ended_) {
    if (cause_.stopped()) stop_mpi();
    if (!shutdown && !mpi_stopped_) mpi_->finalize();
    mpi_stopped_ = true;
    if (!incoming_.empty() || !mpi_->active().empty())
      stop_because(rank_, Error("comm.closed", Blame::bug, "the world was shut down with operations in progress"));
    fail_all();
    return false;
  }
  if (mpi_stopped_) {
    fail_all();
    return true;
  }
  for (const std::string& text : outgoing) mpi_->send_to_others(text);
  while (!incoming_.empty() && (!incoming_.front()->closes_world || !mpi_->sends())) {
    const std::shared_ptr<Exchange> exchange = std::move(incoming_.front());
    incoming_.pop_front();
    mpi_->begin(exchange);
    last_progress_ = exchange->posted;
  }
  return true;
}

bool Service::test_control() {
  const std::optional<MpiTransport::Control> received = mpi_->receive();
  if (received) hear(received->from, received->text);
  return received.has_value();
}

void Service::hear(int from, std::string_view text) {
  auto message = parse_control(text);
  if (!message)
    throw Error("comm.mpi", Blame::bug,
                fmt::format("rank {} received a malformed control message from rank {}", rank_, from));
  if (const Error* error = std::get_if<Error>(&*message)) {
    stop_because(from, *error);
  } else if (auto* published = std::get_if<PublishedValue>(&*message)) {
    table_.post(from, std::move(published->key), std::move(published->value));
  } else if (const Question* question = std::get_if<Question>(&*message)) {
    const Answer answer{*question, deadlines_.report_for(*question, steady_clock::now())};
    mpi_->send(from, std::make_shared<const std::string>(answer_message(answer)));
  } else {
    deadlines_.add_answer(from, std::get<Answer>(std::move(*message)));
  }
}

// Receives what a dead peer sent before it died. Returns false if the world has ended.
bool Service::drain_control() {
  while (test_control()) {}
  mpi_->test();
  return !mpi_->world_closed() && !cause_.stopped();
}

// A core may be shared by many ranks: yields at first, then sleeps for a sixteenth of the time already waited, so that
// sleeping makes a wait at most about 6% longer.
void Service::rest(bool progress) {
  const bool busy = !mpi_stopped_ && (!mpi_->active().empty() || mpi_->sends());
  const auto waited = steady_clock::now() - last_progress_;
  if (busy && (progress || waited < kYieldFor)) {
    sched_yield();
    return;
  }
  const auto pause = busy ? std::clamp<std::chrono::nanoseconds>(waited / 16, kShortestRest, kLongestRest) : kIdleRest;
  std::unique_lock lock(mutex_);
  wake_.wait_for(lock, pause, [&] {
    return shutdown_ || finalize_ || !outgoing_.empty() || !posted_.empty() || (cause_.stopped() && !mpi_stopped_);
  });
}

// Stopping.

void Service::fail_all() {
  mpi_->fail();
  for (const auto& exchange : incoming_) exchange->settle(Exchange::State::failed);
  incoming_.clear();
}

void Service::stop_because(int rank, const Error& error) noexcept {
  if (!cause_.set(rank, error)) return;
  table_.stop();
  std::lock_guard lock(mutex_);
  wake_.notify_all();
}

// Makes the last calls of MPI. Receives are cancelled before the failure is published and the memory freed; after this
// nothing writes to that memory.
void Service::stop_mpi() {
  if (mpi_stopped_) return;
  mpi_stopped_ = true;
  mpi_->cancel_receives();
  const World::Cause cause = cause_.get().value();
  if (cause.rank == rank_) {
    try {
      mpi_->send_to_others(stop_message(cause.error));
      for (const auto end = steady_clock::now() + kStopNoticeLimit; mpi_->sends() && steady_clock::now() < end;) {
        if (!mpi_->drop_finished_sends()) std::this_thread::sleep_for(kShortestRest);
      }
    } catch (const Error&) {
      // MPI itself failed: the others will see this process exit.
    }
  }
  fail_all();
  std::lock_guard lock(mutex_);
  notified_ = true;
  notification_.notify_all();
}

// From other threads.

void Service::post(std::shared_ptr<Exchange> exchange) {
  {
    std::lock_guard lock(mutex_);
    if (!ended_) {
      posted_.push_back(std::move(exchange));
      wake_.notify_one();
      return;
    }
  }
  stop_because(rank_, Error("comm.closed", Blame::bug, exchange->what() + " was issued after the world was closed"));
  exchange->settle(Exchange::State::failed);
}

void Service::wait_until_notified() noexcept {
  std::unique_lock lock(mutex_);
  notification_.wait_for(lock, 2 * kStopNoticeLimit, [&] { return notified_ || ended_; });
}

void Service::publish(MemoryStore::Values values) {
  for (auto& [key, value] : values) {
    std::string text = value_message(key, value);
    table_.post(rank_, std::move(key), std::move(value));
    std::lock_guard lock(mutex_);
    outgoing_.push_back(std::move(text));
    wake_.notify_one();
  }
}

void Service::close() {
  auto exchange = std::make_shared<Exchange>();
  exchange->closes_world = true;
  exchange->group = std::make_shared<const Group>();
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    exchange->transfers.push_back({TransferKind::recv, peer, nullptr, 0});
    exchange->transfers.push_back({TransferKind::matched_send, peer, nullptr, 0});
  }
  const auto met = std::make_shared<std::promise<void>>();
  exchange->notify = [met] { met->set_value(); };
  post(exchange);
  met->get_future().wait();  // the service enforces the deadline
  if (exchange->state == Exchange::State::failed) throw cause_.error_for(rank_);
  {
    std::lock_guard lock(mutex_);
    finalize_ = true;
    wake_.notify_one();
  }
  const std::chrono::duration<double> most = patience_.ceiling();
  if (has_ended_.wait_for(most) != std::future_status::ready) {
    throw Error("comm.deadline", Blame::peer,
                fmt::format("MPI_Finalize has not returned after {:.1f} s", most.count()));
  }
  thread_.join();
  if (cause_.stopped()) throw cause_.error_for(rank_);
}

void Service::shutdown() noexcept {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    shutdown_ = true;
    wake_.notify_one();
  }
  // MPI_Init and MPI_Finalize may hang. The thread keeps this object alive, and the process is about to exit.
  if (has_ended_.wait_for(1s) == std::future_status::ready)
    thread_.join();
  else
    thread_.detach();
}

}  // namespace

std::shared_ptr<MpiService> MpiService::start(std::chrono::milliseconds deadline) {
  auto service = std::make_shared<Service>(deadline);
  try {
    service->launch(service);
  } catch (...) {
    service->shutdown();
    throw;
  }
  return service;
}

}  // namespace ms::comm
