// The only source that knows MPI. What the parts are, in the order of the file: starting, one turn of the loop (take
// what was posted, test requests, hear control messages, look for deadlines and dead peers, rest), stopping. It is
// longer than most because all of it must run on one thread and shares that thread's state.
//
// Tags: one for control messages, one for the closing of the world, then one for each group and kind of operation.
// Sequence numbers need no place in them: members issue the operations of a group in one order, and MPI keeps the order
// of messages of one tag between two ranks. The kind is there so that a mismatch waits for its deadline and is not
// taken for data.
#include "comm/mpi_service.h"

#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <future>
#include <list>
#include <map>
#include <thread>

#include "comm/control.h"
#include "comm/process.h"
#include "comm/store_pmix.h"

namespace ms::comm {
namespace {

using std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr int kControlTag = 0;
constexpr int kCloseTag = 1;
constexpr int kTagsPerGroup = 8;
constexpr std::int64_t kMaxMessageBytes = std::int64_t{1} << 30;  // MPI counts in int
constexpr auto kStartDeadline = 60s;  // at least: the launcher may still be starting the others
constexpr auto kFarewell = 300ms;     // for telling the others why we stop; a dead one must not hold us up
// How often peers on this node are looked at. mpirun ends the survivors of a rank that died 1 s after it, and by then
// the verdict must be written.
constexpr auto kPeerCheckPeriod = 200ms;
// A dead peer that this rank does not wait for: time for another to say in which operation it misses it.
constexpr auto kUnawaitedGrace = 300ms;
constexpr auto kDeadlineCheckPeriod = 10ms;
// Who does not answer for so long, when asked whom it waits for, stands still: others answer in milliseconds.
constexpr auto kAnswersWithin = 2s;
constexpr auto kIdleRest = 3ms;   // nothing under way: how late a control message may be heard
constexpr auto kYieldFor = 50us;  // after progress, before resting
constexpr auto kShortestRest = 20us;
constexpr auto kLongestRest = 500us;

void mpi_check(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw Error("comm.mpi", Blame::fabric,
              fmt::format("{}: {}", call, std::string_view(text, static_cast<std::size_t>(length))));
}

class Service final : public MpiService {
 public:
  explicit Service(std::chrono::milliseconds deadline)
      : deadline_(deadline),
        start_deadline_(std::max<std::chrono::milliseconds>(deadline, kStartDeadline)),
        board_(cause_) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int ranks_on_node() const override { return 1 + static_cast<int>(peers_on_node_.size()); }
  std::string node(int rank) const override { return processes_[static_cast<std::size_t>(rank)].host; }
  Board& board() override { return board_; }
  const FirstCause& cause() const override { return cause_; }
  IssueCounts& issue_counts() override { return issue_counts_; }
  void post(std::shared_ptr<Exchange> exchange) override;
  void abort(const Error& error) noexcept override { stop_because(rank_, error); }
  void wait_until_told() noexcept override;
  void publish(BoardStore::Values values) override;
  void close() override;
  void leave() noexcept override;

  void launch(std::shared_ptr<Service> self);

 private:
  struct ControlSend {
    std::shared_ptr<const std::string> text;
    MPI_Request request;
  };
  struct Slot {  // what requests_ of the same index belongs to
    std::shared_ptr<Exchange> exchange;
    std::size_t message;
  };

  void init();
  void wait_at_start(MPI_Request request, const char* what) const;
  void loop();
  bool take_posted();
  void finalize();
  void begin(const std::shared_ptr<Exchange>& exchange);
  bool test_exchanges();
  void complete_request(int index, const MPI_Status& status, bool failed);
  bool test_control();
  void receive_control();
  void hear(int from, std::string_view text);
  void send_to(int peer, const std::shared_ptr<const std::string>& text);
  void send_to_others(const std::string& text);
  bool drop_finished_sends();
  void check_deadlines(steady_clock::time_point now);
  void ask(steady_clock::time_point now);
  Account account_of(const Question& question, steady_clock::time_point now) const;
  void check_peers(steady_clock::time_point now);
  std::vector<int> awaited(const Exchange& exchange) const;
  void rest(bool progress);
  void stop_because(int rank, const Error& error) noexcept;
  void stop_mpi();
  void fail_all();
  void settle(Exchange& exchange, Exchange::State state) const;
  std::string what_of(const Exchange& exchange) const {
    return exchange.closes_world ? "the closing of the world" : describe(exchange.request, *exchange.group);
  }
  Wait wait_in(const Exchange& exchange) const {  // for whomever
    const int group = exchange.closes_world ? kNoGroup : exchange.group->id;
    return {.peer = -1, .group = group, .sequence = exchange.request.sequence, .what = what_of(exchange)};
  }

  const std::chrono::milliseconds deadline_, start_deadline_;
  FirstCause cause_;
  IssueCounts issue_counts_;
  Board board_;
  std::thread thread_;
  std::promise<void> started_, thread_ended_;
  std::future<void> has_ended_ = thread_ended_.get_future();

  std::mutex mutex_;                  // guards what follows
  std::condition_variable wake_;      // of the service thread
  std::condition_variable has_told_;  // of who aborted
  std::deque<std::shared_ptr<Exchange>> posted_;
  std::deque<std::string> outgoing_;
  bool leave_ = false, finalize_ = false;
  bool told_ = false;   // the others know that we stop, as far as they can be told
  bool ended_ = false;  // nobody takes what is posted

  // The service thread's; the first four are constant once it has started.
  int rank_ = -1, size_ = 0;
  std::vector<ProcessId> processes_;  // by rank
  std::vector<int> peers_on_node_;
  int tag_limit_ = 0;
  MPI_Comm comm_ = MPI_COMM_NULL;
  std::deque<std::shared_ptr<Exchange>> incoming_;  // taken, not begun
  std::vector<std::shared_ptr<Exchange>> active_;
  std::vector<MPI_Request> requests_;
  std::vector<Slot> slots_;
  std::vector<int> finished_;
  std::vector<MPI_Status> statuses_;
  std::vector<char> control_buffer_ = std::vector<char>(kMaxControlBytes);
  MPI_Request control_receive_ = MPI_REQUEST_NULL;
  std::list<ControlSend> control_sends_;
  std::map<int, steady_clock::time_point> died_;  // peers on this node that nobody here waited for, since when
  std::shared_ptr<Exchange> overdue_;             // the exchange whose deadline has passed, while it is asked why
  std::optional<Inquiry> inquiry_;
  steady_clock::time_point answers_until_;
  bool closed_ = false;  // everybody has been met at the closing of the world
  bool mpi_stopped_ = false;
  steady_clock::time_point last_progress_, last_deadline_check_, last_peer_check_;
};

// Starting.

void Service::launch(std::shared_ptr<Service> self) {
  std::future<void> started = started_.get_future();
  thread_ = std::thread([self = std::move(self)] {
    pthread_setname_np(pthread_self(), "ms-mpi");
    prctl(PR_SET_TIMERSLACK, 1000UL);  // ns: the rests are short
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
  if (started.wait_for(start_deadline_) != std::future_status::ready) {
    throw Error("comm.deadline", Blame::peer,
                fmt::format("MPI_Init has not returned after {:.1f} s",
                            std::chrono::duration<double>(start_deadline_).count()));
  }
  started.get();
}

void Service::wait_at_start(MPI_Request request, const char* what) const {
  const steady_clock::time_point begin = steady_clock::now();
  int done = 0;
  while (true) {
    mpi_check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done != 0) return;
    if (steady_clock::now() - begin > start_deadline_) {
      throw Error("comm.deadline", Blame::peer,
                  fmt::format("rank {} waited {:.1f} s for the other ranks in {}", rank_,
                              std::chrono::duration<double>(start_deadline_).count(), what));
    }
    std::this_thread::sleep_for(kShortestRest);
  }
}

void Service::init() {
  int provided = 0;
  mpi_check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
  if (provided < MPI_THREAD_FUNNELED) {
    throw Error("comm.mpi", Blame::user, "this MPI cannot be used by a program with threads");
  }
  // Open MPI 4.1 crashes where a message comes from another node while it still starts, and under srun the barrier at
  // the end of MPI_Init is none: one of fourteen starts failed on busy nodes.
  pmix_barrier(start_deadline_);
  mpi_check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  mpi_check(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
  mpi_check(MPI_Comm_size(MPI_COMM_WORLD, &size_), "MPI_Comm_size");
  MPI_Request request = MPI_REQUEST_NULL;
  mpi_check(MPI_Comm_idup(MPI_COMM_WORLD, &comm_, &request), "MPI_Comm_idup");
  wait_at_start(request, "MPI_Comm_idup");
  mpi_check(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  int* limit = nullptr;
  int found = 0;
  mpi_check(MPI_Comm_get_attr(comm_, MPI_TAG_UB, &limit, &found), "MPI_Comm_get_attr");
  tag_limit_ = found != 0 ? *limit : 32767;  // what the standard guarantees

  const ProcessId own = this_process();
  processes_.resize(static_cast<std::size_t>(size_));
  mpi_check(MPI_Iallgather(&own, sizeof own, MPI_BYTE, processes_.data(), sizeof own, MPI_BYTE, comm_, &request),
            "MPI_Iallgather");
  wait_at_start(request, "exchanging process identifiers");
  for (int peer = 0; peer < size_; ++peer) {
    if (peer != rank_ && same_host(processes_[static_cast<std::size_t>(peer)], own)) peers_on_node_.push_back(peer);
  }
  receive_control();
}

// One turn.

void Service::loop() {
  last_progress_ = steady_clock::now();
  while (true) {
    bool progress = false;
    try {
      if (!take_posted()) return;
      if (cause_.stopped()) {
        stop_mpi();
      } else {
        const bool exchanged = test_exchanges();
        const bool heard = test_control();
        const bool sent = drop_finished_sends();
        progress = exchanged || heard || sent;
        const steady_clock::time_point now = steady_clock::now();
        if (progress) last_progress_ = now;
        if (now - last_deadline_check_ > kDeadlineCheckPeriod) check_deadlines(now);
        if (now - last_peer_check_ > kPeerCheckPeriod) check_peers(now);
      }
    } catch (const Error& error) {
      stop_because(rank_, error);
      continue;
    }
    rest(progress);
  }
}

// False when the thread shall end.
bool Service::take_posted() {
  std::deque<std::string> outgoing;
  bool leave = false;
  {
    std::lock_guard lock(mutex_);
    incoming_.insert(incoming_.end(), posted_.begin(), posted_.end());
    posted_.clear();
    outgoing.swap(outgoing_);
    leave = leave_;
    ended_ = leave_ || finalize_;
  }
  if (ended_) {
    if (cause_.stopped()) stop_mpi();
    if (!leave && !mpi_stopped_) finalize();
    mpi_stopped_ = true;
    if (!incoming_.empty() || !active_.empty()) {
      stop_because(rank_, Error("comm.closed", Blame::bug, "the world was left while an operation was under way"));
    }
    fail_all();
    return false;
  }
  if (mpi_stopped_) {
    fail_all();
    return true;
  }
  for (const std::string& text : outgoing) send_to_others(text);
  while (!incoming_.empty() && (!incoming_.front()->closes_world || control_sends_.empty())) {
    const std::shared_ptr<Exchange> exchange = std::move(incoming_.front());
    incoming_.pop_front();
    begin(exchange);
  }
  return true;
}

void Service::finalize() {
  mpi_check(MPI_Cancel(&control_receive_), "MPI_Cancel");
  mpi_check(MPI_Wait(&control_receive_, MPI_STATUS_IGNORE), "MPI_Wait");  // local: it has been cancelled
  mpi_check(MPI_Finalize(), "MPI_Finalize");
  mpi_stopped_ = true;
}

void Service::begin(const std::shared_ptr<Exchange>& exchange) {
  const OpKind kind = exchange->request.kind == OpKind::recv ? OpKind::send : exchange->request.kind;  // they meet
  const int tag =
      exchange->closes_world ? kCloseTag : (exchange->group->id + 1) * kTagsPerGroup + static_cast<int>(kind);
  MS_ASSERT(exchange->closes_world || (exchange->group->id >= 0 && tag <= tag_limit_),
            "group {} with id {} has no message tag below {}", what_of(*exchange), exchange->group->id, tag_limit_);
  std::vector<Message> cut;  // into what MPI can count
  for (Message message : exchange->messages) {
    for (; message.size_bytes > kMaxMessageBytes;
         message.data += kMaxMessageBytes, message.size_bytes -= kMaxMessageBytes) {
      cut.push_back({message.way, message.peer, message.data, kMaxMessageBytes});
    }
    cut.push_back(message);
  }
  exchange->messages = std::move(cut);
  exchange->done.assign(exchange->messages.size(), false);
  exchange->left = exchange->messages.size();
  exchange->posted = steady_clock::now();
  if (exchange->left == 0) {  // a world of one
    settle(*exchange, Exchange::State::complete);
    return;
  }
  active_.push_back(exchange);
  for (std::size_t i = 0; i < exchange->messages.size(); ++i) {
    const Message& message = exchange->messages[i];
    const int count = static_cast<int>(message.size_bytes);
    MPI_Request request = MPI_REQUEST_NULL;
    switch (message.way) {
      case Way::recv:
        mpi_check(MPI_Irecv(message.data, count, MPI_BYTE, message.peer, tag, comm_, &request), "MPI_Irecv");
        break;
      case Way::send:
        mpi_check(MPI_Isend(message.data, count, MPI_BYTE, message.peer, tag, comm_, &request), "MPI_Isend");
        break;
      case Way::matched_send:
        mpi_check(MPI_Issend(message.data, count, MPI_BYTE, message.peer, tag, comm_, &request), "MPI_Issend");
        break;
    }
    requests_.push_back(request);
    slots_.push_back({exchange, i});
  }
  last_progress_ = exchange->posted;
}

bool Service::test_exchanges() {
  if (requests_.empty()) return false;
  const int count = static_cast<int>(requests_.size());
  finished_.resize(requests_.size());
  statuses_.resize(requests_.size());
  int finished = 0;
  const int code = MPI_Testsome(count, requests_.data(), &finished, finished_.data(), statuses_.data());
  if (code != MPI_ERR_IN_STATUS) mpi_check(code, "MPI_Testsome");
  if (finished == MPI_UNDEFINED || finished == 0) return false;
  for (int i = 0; i < finished; ++i) {
    const auto at = static_cast<std::size_t>(i);
    complete_request(finished_[at], statuses_[at], code == MPI_ERR_IN_STATUS);
  }
  // Only now, with all of them marked, because removing moves others to their places.
  for (std::size_t i = 0; i < requests_.size();) {
    if (requests_[i] != MPI_REQUEST_NULL) {
      ++i;
      continue;
    }
    requests_[i] = requests_.back();
    slots_[i] = std::move(slots_.back());
    requests_.pop_back();
    slots_.pop_back();
  }
  return true;
}

void Service::complete_request(int index, const MPI_Status& status, bool failed) {
  const Slot& slot = slots_[static_cast<std::size_t>(index)];
  Exchange& exchange = *slot.exchange;
  const Message& message = exchange.messages[slot.message];
  int received = 0;
  if (failed && status.MPI_ERROR != MPI_SUCCESS && status.MPI_ERROR != MPI_ERR_PENDING) {
    int error_class = 0;
    MPI_Error_class(status.MPI_ERROR, &error_class);
    if (error_class != MPI_ERR_TRUNCATE) mpi_check(status.MPI_ERROR, what_of(exchange).c_str());
    received = -1;
  } else if (message.way == Way::recv) {
    mpi_check(MPI_Get_count(&status, MPI_BYTE, &received), "MPI_Get_count");
  }
  if (message.way == Way::recv && received != message.size_bytes) {
    throw Error("comm.mismatch", Blame::bug,
                fmt::format("rank {} awaited {} bytes from rank {} in {}, and got {}", rank_, message.size_bytes,
                            message.peer, what_of(exchange), received < 0 ? "more" : std::to_string(received)))
        .with_operation(what_of(exchange));
  }
  exchange.done[slot.message] = true;
  if (--exchange.left > 0) return;
  active_.erase(std::find(active_.begin(), active_.end(), slot.exchange));
  closed_ = exchange.closes_world;
  settle(exchange, Exchange::State::complete);
}

// Control messages.

void Service::receive_control() {
  mpi_check(MPI_Irecv(control_buffer_.data(), static_cast<int>(control_buffer_.size()), MPI_BYTE, MPI_ANY_SOURCE,
                      kControlTag, comm_, &control_receive_),
            "MPI_Irecv");
}

bool Service::test_control() {
  int done = 0;
  MPI_Status status;
  mpi_check(MPI_Test(&control_receive_, &done, &status), "MPI_Test");  // and lets MPI work while nothing else is asked
  if (done == 0) return false;
  int count = 0;
  mpi_check(MPI_Get_count(&status, MPI_BYTE, &count), "MPI_Get_count");
  hear(status.MPI_SOURCE, std::string_view(control_buffer_.data(), static_cast<std::size_t>(count)));
  receive_control();
  return true;
}

void Service::hear(int from, std::string_view text) {
  auto message = parse_control(text);
  if (!message) {
    throw Error("comm.mpi", Blame::bug,
                fmt::format("rank {} got a control message from rank {} that nobody knows", rank_, from));
  }
  if (const Error* error = std::get_if<Error>(&*message)) {
    stop_because(from, *error);
  } else if (auto* published = std::get_if<PublishedValue>(&*message)) {
    board_.post(from, std::move(published->key), std::move(published->value));
  } else if (const Question* question = std::get_if<Question>(&*message)) {
    const Answer answer{*question, account_of(*question, steady_clock::now())};
    send_to(from, std::make_shared<const std::string>(answer_message(answer)));
  } else if (inquiry_) {
    auto& [about, account] = std::get<Answer>(*message);
    inquiry_->hear(from, about.group, about.sequence, std::move(account));
  }
}

void Service::send_to(int peer, const std::shared_ptr<const std::string>& text) {
  control_sends_.push_back({text, MPI_REQUEST_NULL});
  mpi_check(MPI_Isend(text->data(), static_cast<int>(text->size()), MPI_BYTE, peer, kControlTag, comm_,
                      &control_sends_.back().request),
            "MPI_Isend");
}

void Service::send_to_others(const std::string& text) {
  const auto shared = std::make_shared<const std::string>(text);
  for (int k = 1; k < size_; ++k) send_to((rank_ + k) % size_, shared);
}

bool Service::drop_finished_sends() {
  const std::size_t before = control_sends_.size();
  for (auto send = control_sends_.begin(); send != control_sends_.end();) {
    int done = 0;
    mpi_check(MPI_Test(&send->request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    send = done != 0 ? control_sends_.erase(send) : std::next(send);
  }
  return control_sends_.size() != before;
}

// Deadlines and the dead.

std::vector<int> Service::awaited(const Exchange& exchange) const {
  std::vector<int> peers;
  for (std::size_t i = 0; i < exchange.messages.size(); ++i) {
    if (!exchange.done[i]) peers.push_back(exchange.messages[i].peer);
  }
  std::sort(peers.begin(), peers.end());
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  return peers;
}

void Service::check_deadlines(steady_clock::time_point now) {
  last_deadline_check_ = now;
  if (overdue_ && overdue_->state.load(std::memory_order_relaxed) != Exchange::State::pending) {
    overdue_.reset();  // it came after all
    inquiry_.reset();
  }
  if (!overdue_) {
    const auto found =
        std::ranges::find_if(active_, [&](const auto& exchange) { return now - exchange->posted >= deadline_; });
    if (found == active_.end()) return;
    overdue_ = *found;
    inquiry_.emplace(rank_, now - overdue_->posted, awaited(*overdue_), wait_in(*overdue_));
    answers_until_ = now + kAnswersWithin;
  }
  ask(now);
  if (inquiry_->all_heard() || now > answers_until_) throw inquiry_->verdict();
}

void Service::ask(steady_clock::time_point now) {
  while (const std::optional<Wait> wait = inquiry_->next_question()) {
    const Question question{wait->group, wait->sequence};
    if (wait->peer == rank_) {
      inquiry_->hear(rank_, wait->group, wait->sequence, account_of(question, now));
    } else {
      send_to(wait->peer, std::make_shared<const std::string>(question_message(question)));
      answers_until_ = now + kAnswersWithin;
    }
  }
}

Account Service::account_of(const Question& question, steady_clock::time_point now) const {
  Account account;
  const auto closes = [](const auto& exchange) { return exchange->closes_world; };
  account.issued = question.group == kNoGroup ? std::ranges::any_of(active_, closes)
                                              : issue_counts_.has_issued(question.group, question.sequence);
  std::vector<AgedWait> waits;
  for (const auto& exchange : active_) {
    if (now - exchange->posted < deadline_ / 2) continue;
    for (const int peer : awaited(*exchange)) {
      waits.push_back({exchange->posted, wait_in(*exchange)});
      waits.back().wait.peer = peer;
    }
  }
  account.waits = oldest(std::move(waits));
  return account;
}

// A rank that ends before the world is closed is lost, whether or not anybody waits for it yet.
void Service::check_peers(steady_clock::time_point now) {
  last_peer_check_ = now;
  for (const int peer : peers_on_node_) {
    const ProcessId& process = processes_[static_cast<std::size_t>(peer)];
    if (!has_died(process, processes_[static_cast<std::size_t>(rank_)])) continue;
    // What it sent before it went still arrives: why it stops, or that it has closed the world.
    while (test_control()) {}
    test_exchanges();
    if (closed_ || cause_.stopped()) return;
    const auto waits_for_it = std::find_if(active_.begin(), active_.end(), [&](const auto& exchange) {
      const std::vector<int> peers = awaited(*exchange);
      return std::find(peers.begin(), peers.end(), peer) != peers.end();
    });
    const bool closing =
        std::any_of(active_.begin(), active_.end(), [](const auto& exchange) { return exchange->closes_world; });
    if (waits_for_it == active_.end()) {
      if (closing) continue;  // it was there, and went ahead
      if (died_.emplace(peer, now).first->second + kUnawaitedGrace > now) continue;
    }
    const std::string what = waits_for_it == active_.end() ? std::string() : what_of(**waits_for_it);
    throw Error("comm.peer_lost", Blame::peer,
                fmt::format("rank {} (pid {} on {}) died{}{}", peer, process.pid, process.host,
                            what.empty() ? "" : " during ", what))
        .with_operation(what)
        .with_rank(peer);
  }
}

// A core may be shared by many ranks: yield at first, then rest for a sixteenth of the time that was already waited, so
// that resting makes no wait more than some 6% longer.
void Service::rest(bool progress) {
  const bool busy = !mpi_stopped_ && (!requests_.empty() || !control_sends_.empty());
  const auto waited = steady_clock::now() - last_progress_;
  if (busy && (progress || waited < kYieldFor)) {
    sched_yield();
    return;
  }
  const auto pause = busy ? std::clamp<std::chrono::nanoseconds>(waited / 16, kShortestRest, kLongestRest) : kIdleRest;
  std::unique_lock lock(mutex_);
  wake_.wait_for(lock, pause, [&] {
    return leave_ || finalize_ || !outgoing_.empty() || !posted_.empty() || (cause_.stopped() && !mpi_stopped_);
  });
}

// Stopping.

void Service::settle(Exchange& exchange, Exchange::State state) const {
  // Taken first: who sees the state may drop the exchange's owner. The list of messages still holds the exchange.
  const std::function<void()> notify = std::move(exchange.notify);
  exchange.state.store(state, std::memory_order_release);
  notify();
}

void Service::fail_all() {
  for (const auto& exchange : active_) settle(*exchange, Exchange::State::failed);
  for (const auto& exchange : incoming_) settle(*exchange, Exchange::State::failed);
  active_.clear();
  incoming_.clear();
}

void Service::stop_because(int rank, const Error& error) noexcept {
  if (!cause_.set(rank, error)) return;
  board_.stop();
  std::lock_guard lock(mutex_);
  wake_.notify_all();
}

// Makes the last calls of MPI. Receives are cancelled before anybody hears of the failure and frees the memory, and
// after this nothing moves data any more. What cannot be cancelled leaks, on purpose: waiting for it could last for
// ever.
void Service::stop_mpi() {
  if (mpi_stopped_) return;
  mpi_stopped_ = true;
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    const bool receives = slots_[i].exchange->messages[slots_[i].message].way == Way::recv;
    if (receives && requests_[i] != MPI_REQUEST_NULL) MPI_Cancel(&requests_[i]);
  }
  const World::Cause cause = cause_.get().value();
  if (cause.rank == rank_) {
    try {
      send_to_others(stop_message(cause.error));
      for (const auto end = steady_clock::now() + kFarewell; !control_sends_.empty() && steady_clock::now() < end;) {
        if (!drop_finished_sends()) std::this_thread::sleep_for(kShortestRest);
      }
    } catch (const Error&) {
      // MPI itself is what failed: the others will see us go.
    }
  }
  fail_all();
  std::lock_guard lock(mutex_);
  told_ = true;
  has_told_.notify_all();
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
  stop_because(rank_, Error("comm.closed", Blame::bug, what_of(*exchange) + " began after the world was closed"));
  settle(*exchange, Exchange::State::failed);
}

void Service::wait_until_told() noexcept {
  std::unique_lock lock(mutex_);
  has_told_.wait_for(lock, 2 * kFarewell, [&] { return told_ || ended_; });
}

void Service::publish(BoardStore::Values values) {
  for (auto& [key, value] : values) {
    std::string text = value_message(key, value);
    board_.post(rank_, std::move(key), std::move(value));
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
    exchange->messages.push_back({Way::recv, peer, nullptr, 0});
    exchange->messages.push_back({Way::matched_send, peer, nullptr, 0});
  }
  const auto met = std::make_shared<std::promise<void>>();
  exchange->notify = [met] { met->set_value(); };
  post(exchange);
  met->get_future().wait();  // the service has the deadline
  if (exchange->state == Exchange::State::failed) throw cause_.error_for(rank_);
  {
    std::lock_guard lock(mutex_);
    finalize_ = true;
    wake_.notify_one();
  }
  if (has_ended_.wait_for(deadline_) != std::future_status::ready) {
    throw Error(
        "comm.deadline", Blame::peer,
        fmt::format("MPI_Finalize has not returned after {:.1f} s", std::chrono::duration<double>(deadline_).count()));
  }
  thread_.join();
  if (cause_.stopped()) throw cause_.error_for(rank_);
}

void Service::leave() noexcept {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    leave_ = true;
    wake_.notify_one();
  }
  // MPI_Init and MPI_Finalize may hang for ever. The thread keeps this object alive, and the process is about to end.
  if (has_ended_.wait_for(1s) == std::future_status::ready) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

}  // namespace

std::shared_ptr<MpiService> MpiService::start(std::chrono::milliseconds deadline) {
  auto service = std::make_shared<Service>(deadline);
  try {
    service->launch(service);
  } catch (...) {
    service->leave();
    throw;
  }
  return service;
}

}  // namespace ms::comm
