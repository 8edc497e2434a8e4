// A member of a communicator of the emulated NCCL: its connections, and its part in operations.
#pragma once

#include <nccl.h>
#include <poll.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace ms::emulated::nccl {

// Creates a listener with its own address, which rank 0 takes later. Returns an empty string if there are no sockets.
std::string listen();

enum class Kind : std::int32_t { all_reduce, reduce_scatter, all_gather, broadcast, transfer, exchange };

// The header of an operation: members agree if theirs are equal.
struct Header {
  std::uint64_t sequence = 0, count = 0;
  Kind kind = Kind::all_reduce;
  ncclDataType_t type = ncclInt8;
  ncclRedOp_t reduce = ncclSum;
  std::int32_t root = 0;  // for a transfer the sender
  std::int32_t registered = 0;

  bool operator==(const Header&) const = default;
  bool has_root() const { return kind == Kind::broadcast || kind == Kind::transfer; }
  std::string text() const;
};
// A send or a receive of an exchange, which is what a group of them is.
struct Transfer {
  std::int32_t sends = 0, peer = 0;
  std::uint64_t bytes = 0;
  std::byte* data = nullptr;
};
struct Operation {
  Header header;
  const void* in;
  void* out;
  bool hangs;
  std::vector<Transfer> transfers;
};
// Thrown to end a member's operation; carries its asynchronous error.
struct Failure {
  ncclResult_t code;
  std::string text;
};
enum class Verdict : std::int32_t { agreed, disagreed };

class Member {
 public:
  Member(int rank, int size, bool blocks);
  ~Member();
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  int rank() const { return rank_; }
  bool blocks() const { return blocks_; }
  int size() const { return static_cast<int>(sockets_.size()); }
  ncclResult_t state() const;
  const char* error_text() const;  // the first error stays

  void join(const std::string& name);
  void join_in_background(const std::string& name);

  // Tells whether this is the first transfer of two members, in which they connect: the call blocks, or stays in
  // progress, until both have arrived. `then` runs after that.
  bool connects();
  void connect(bool hangs);
  void connect_in_background(const std::function<void()>& then);

  std::uint64_t begin();
  void run(const Operation& operation);

  void finalize();
  void leave();
  void revoke();  // ends all waiting; abort() follows
  void abort();

 private:
  // Waits until rank 0 knows all members, and they know that it does.
  void await_members(const std::string& name);
  void join_hub(const std::string& name);

  void lead(const Operation& operation);
  void follow(const Operation& operation);
  void lead_exchange(const Operation& operation);
  void follow_exchange(const Operation& operation);
  // Exchanges headers: no data moves before all members have arrived. Rank 0 reports the first disagreement to all.
  void meet(const Header& mine);
  void tell(Verdict verdict);
  void obey(const std::string& otherwise);

  void send(int socket, int rank, const void* data, std::size_t size) const;
  void receive(int socket, int rank, void* data, std::size_t size) const;
  template <class Step>
  void move(int socket, int rank, std::size_t size, std::int16_t event, const Step& step) const;
  void poll_on(std::vector<pollfd>& some) const;
  void check() const {
    if (aborted_) throw Failure{ncclSystemError, "aborted"};
  }
  void meet_peer();
  void linger(double seconds) const;
  void hang() const;
  void stay() const;

  void fail(const Failure& failure);
  void shut();
  int socket_of(int rank) const { return sockets_[static_cast<std::size_t>(rank)]; }

  const int rank_;
  const bool blocks_;         // calls block until done
  std::vector<int> sockets_;  // rank 0: one to each other rank; others: only the first, to rank 0
  int listener_ = -1, newcomer_ = -1;
  double transfer_rate_ = 0;    // bytes a second, of rank 0 of two; 0: as fast as it goes
  std::array<bool, 2> lies_{};  // of rank 0 of two: which of them sends a wrong word
  const int abort_event_;
  std::atomic<bool> aborted_ = false;
  std::thread joiner_;
  std::mutex operation_;  // held by the running operation

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool joined_ = false, finalizes_ = false, connected_ = false;
  std::uint64_t sequence_ = 0, pending_ = 0;
  ncclResult_t error_ = ncclSuccess;
  std::string error_text_;
};

}  // namespace ms::emulated::nccl
