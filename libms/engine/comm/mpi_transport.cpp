// The only source that includes mpi.h.
//
// Tags: one for control messages, one for closing the world, then one for each group and kind of operation. Tags need
// no sequence number: members issue the operations of a group in one order, and MPI keeps the order of messages with
// one tag between two ranks. The kind is part of the tag so that mismatched operations run into their deadline rather
// than exchange data.
#include "comm/mpi_transport.h"

#include <mpi.h>

#include <algorithm>
#include <list>
#include <thread>

#include "comm/control.h"
#include "comm/store_pmix.h"

namespace ms::comm {
namespace {

using std::chrono::steady_clock;

constexpr int kControlTag = 0, kCloseTag = 1;
constexpr int kTagsPerGroup = 8;
static_assert(static_cast<int>(OpKind::all_to_all) < kTagsPerGroup,
              "the last kind of operation has a tag of its group");
constexpr std::int64_t kMaxTransferBytes = std::int64_t{1} << 30;  // MPI counts in int

void mpi_check(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw Error("comm.mpi", Blame::fabric,
              fmt::format("{}: {}", call, std::string_view(text, static_cast<std::size_t>(length))));
}

int tag_of(const Exchange& exchange) {
  if (exchange.closes_world) return kCloseTag;
  const OpKind kind =
      exchange.request.kind == OpKind::recv ? OpKind::send : exchange.request.kind;  // a recv matches a send
  return (exchange.group->id + 1) * kTagsPerGroup + static_cast<int>(kind);
}

// Splits transfers so that MPI can count their bytes in an int.
std::vector<Transfer> split_transfers(const std::vector<Transfer>& transfers) {
  std::vector<Transfer> parts;
  for (Transfer transfer : transfers) {
    for (; transfer.size_bytes > kMaxTransferBytes;
         transfer.data += kMaxTransferBytes, transfer.size_bytes -= kMaxTransferBytes) {
      parts.push_back({transfer.kind, transfer.peer, transfer.data, kMaxTransferBytes});
    }
    parts.push_back(transfer);
  }
  return parts;
}

class Transport final : public MpiTransport {
 public:
  Started start(std::chrono::milliseconds deadline) override;
  void finalize() override;

  void begin(const std::shared_ptr<Exchange>& exchange) override;
  bool test() override;
  const Exchanges& active() const override { return active_; }
  bool world_closed() const override { return world_closed_; }
  void cancel_receives() override;
  void fail() override;

  void send(int peer, std::shared_ptr<const std::string> text) override;
  void send_to_others(const std::string& text) override;
  bool drop_finished_sends() override;
  bool sends() const override { return !sends_.empty(); }
  std::optional<Control> receive() override;

 private:
  struct Slot {  // the transfer of requests_[same index]
    std::shared_ptr<Exchange> exchange;
    std::size_t transfer;
  };
  struct Send {
    std::shared_ptr<const std::string> text;
    MPI_Request request;
  };

  void wait(MPI_Request request, std::chrono::milliseconds deadline, const char* what) const;
  void complete_request(int index, const MPI_Status& status, bool failed);
  void post_receive();

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = -1, size_ = 0, tag_limit_ = 0;

  Exchanges active_;
  std::vector<MPI_Request> requests_;
  std::vector<Slot> slots_;
  std::vector<int> finished_;
  std::vector<MPI_Status> statuses_;
  bool world_closed_ = false;

  std::vector<char> received_ = std::vector<char>(kMaxControlBytes);
  MPI_Request receive_ = MPI_REQUEST_NULL;
  std::list<Send> sends_;
};

// The start and the end.

void Transport::wait(MPI_Request request, std::chrono::milliseconds deadline, const char* what) const {
  const steady_clock::time_point begin = steady_clock::now();
  int done = 0;
  while (true) {
    mpi_check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done != 0) return;
    if (steady_clock::now() - begin > deadline) {
      throw Error("comm.deadline", Blame::peer,
                  fmt::format("rank {} waited {:.1f} s for the other ranks in {}", rank_,
                              std::chrono::duration<double>(deadline).count(), what));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

MpiTransport::Started Transport::start(std::chrono::milliseconds deadline) {
  int provided = 0;
  mpi_check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
  if (provided < MPI_THREAD_FUNNELED) {
    throw Error("comm.mpi", Blame::user, "this MPI cannot be used by a program with threads");
  }
  // Open MPI 4.1 crashes if a message arrives from another node while it still starts, and under srun MPI_Init does not
  // end with a barrier: one of fourteen starts failed on busy nodes.
  pmix_barrier(deadline);
  mpi_check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  mpi_check(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
  mpi_check(MPI_Comm_size(MPI_COMM_WORLD, &size_), "MPI_Comm_size");
  MPI_Request request = MPI_REQUEST_NULL;
  mpi_check(MPI_Comm_idup(MPI_COMM_WORLD, &comm_, &request), "MPI_Comm_idup");
  wait(request, deadline, "MPI_Comm_idup");
  mpi_check(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  int* limit = nullptr;
  int found = 0;
  mpi_check(MPI_Comm_get_attr(comm_, MPI_TAG_UB, &limit, &found), "MPI_Comm_get_attr");
  tag_limit_ = found != 0 ? *limit : 32767;  // the standard's minimum

  const ProcessId own = this_process();
  Started started{rank_, std::vector<ProcessId>(static_cast<std::size_t>(size_))};
  mpi_check(MPI_Iallgather(&own, sizeof own, MPI_BYTE, started.processes.data(), sizeof own, MPI_BYTE, comm_, &request),
            "MPI_Iallgather");
  wait(request, deadline, "exchanging process identifiers");
  post_receive();
  return started;
}

void Transport::finalize() {
  mpi_check(MPI_Cancel(&receive_), "MPI_Cancel");
  mpi_check(MPI_Wait(&receive_, MPI_STATUS_IGNORE), "MPI_Wait");  // returns at once: the request was cancelled
  mpi_check(MPI_Finalize(), "MPI_Finalize");
}

// Exchanges.

void Transport::begin(const std::shared_ptr<Exchange>& exchange) {
  const int tag = tag_of(*exchange);
  MS_ASSERT(exchange->closes_world || (exchange->group->id >= 0 && tag <= tag_limit_),
            "group {} with id {} has no message tag below {}", exchange->what(), exchange->group->id, tag_limit_);
  exchange->transfers = split_transfers(exchange->transfers);
  exchange->done.assign(exchange->transfers.size(), false);
  exchange->left = exchange->transfers.size();
  exchange->posted = steady_clock::now();
  if (exchange->left == 0) {  // a world of one
    exchange->settle(Exchange::State::complete);
    return;
  }
  active_.push_back(exchange);
  for (std::size_t i = 0; i < exchange->transfers.size(); ++i) {
    const Transfer& transfer = exchange->transfers[i];
    const int count = static_cast<int>(transfer.size_bytes);
    MPI_Request request = MPI_REQUEST_NULL;
    switch (transfer.kind) {
      case TransferKind::recv:
        mpi_check(MPI_Irecv(transfer.data, count, MPI_BYTE, transfer.peer, tag, comm_, &request), "MPI_Irecv");
        break;
      case TransferKind::send:
        mpi_check(MPI_Isend(transfer.data, count, MPI_BYTE, transfer.peer, tag, comm_, &request), "MPI_Isend");
        break;
      case TransferKind::matched_send:
        mpi_check(MPI_Issend(transfer.data, count, MPI_BYTE, transfer.peer, tag, comm_, &request), "MPI_Issend");
        break;
    }
    requests_.push_back(request);
    slots_.push_back({exchange, i});
  }
}

bool Transport::test() {
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
  // Removes the finished requests after all are marked, because removing moves others to their places.
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

void Transport::complete_request(int index, const MPI_Status& status, bool failed) {
  const Slot& slot = slots_[static_cast<std::size_t>(index)];
  Exchange& exchange = *slot.exchange;
  const Transfer& transfer = exchange.transfers[slot.transfer];
  int received = 0;
  if (failed && status.MPI_ERROR != MPI_SUCCESS && status.MPI_ERROR != MPI_ERR_PENDING) {
    int error_class = 0;
    MPI_Error_class(status.MPI_ERROR, &error_class);
    if (error_class != MPI_ERR_TRUNCATE) mpi_check(status.MPI_ERROR, exchange.what().c_str());
    received = -1;
  } else if (transfer.kind == TransferKind::recv) {
    mpi_check(MPI_Get_count(&status, MPI_BYTE, &received), "MPI_Get_count");
  }
  if (transfer.kind == TransferKind::recv && received != transfer.size_bytes) {
    throw Error("comm.mismatch", Blame::bug,
                fmt::format("rank {} expected {} bytes from rank {} in {} and received {}", rank_, transfer.size_bytes,
                            transfer.peer, exchange.what(), received < 0 ? "more" : std::to_string(received)))
        .with_operation(exchange.what());
  }
  exchange.done[slot.transfer] = true;
  if (--exchange.left > 0) return;
  active_.erase(std::find(active_.begin(), active_.end(), slot.exchange));
  world_closed_ = exchange.closes_world;
  exchange.settle(Exchange::State::complete);
}

void Transport::cancel_receives() {
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    const bool receives = slots_[i].exchange->transfers[slots_[i].transfer].kind == TransferKind::recv;
    if (receives && requests_[i] != MPI_REQUEST_NULL) MPI_Cancel(&requests_[i]);
  }
}

void Transport::fail() {
  for (const auto& exchange : active_) exchange->settle(Exchange::State::failed);
  active_.clear();
}

// Control messages.

void Transport::post_receive() {
  mpi_check(MPI_Irecv(received_.data(), static_cast<int>(received_.size()), MPI_BYTE, MPI_ANY_SOURCE, kControlTag,
                      comm_, &receive_),
            "MPI_Irecv");
}

std::optional<MpiTransport::Control> Transport::receive() {
  int done = 0;
  MPI_Status status;
  mpi_check(MPI_Test(&receive_, &done, &status), "MPI_Test");
  if (done == 0) return std::nullopt;
  int count = 0;
  mpi_check(MPI_Get_count(&status, MPI_BYTE, &count), "MPI_Get_count");
  Control control{status.MPI_SOURCE, std::string(received_.data(), static_cast<std::size_t>(count))};
  post_receive();
  return control;
}

void Transport::send(int peer, std::shared_ptr<const std::string> text) {
  Send& send = sends_.emplace_back(Send{std::move(text), MPI_REQUEST_NULL});
  mpi_check(MPI_Isend(send.text->data(), static_cast<int>(send.text->size()), MPI_BYTE, peer, kControlTag, comm_,
                      &send.request),
            "MPI_Isend");
}

void Transport::send_to_others(const std::string& text) {
  const auto shared = std::make_shared<const std::string>(text);
  for (int k = 1; k < size_; ++k) send((rank_ + k) % size_, shared);
}

bool Transport::drop_finished_sends() {
  const std::size_t before = sends_.size();
  for (auto send = sends_.begin(); send != sends_.end();) {
    int done = 0;
    mpi_check(MPI_Test(&send->request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    send = done != 0 ? sends_.erase(send) : std::next(send);
  }
  return sends_.size() != before;
}

}  // namespace

std::unique_ptr<MpiTransport> MpiTransport::make() { return std::make_unique<Transport>(); }

}  // namespace ms::comm
