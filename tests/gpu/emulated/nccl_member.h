// A member of a communicator of the emulated NCCL: its connections, and how it takes part in operations.
#pragma once

#include <nccl.h>
#include <poll.h>

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

// A listener of this process, at an address of its own, until rank 0 takes it. Empty where there are no sockets.
std::string listen();

enum class Kind : std::int32_t { all_reduce, reduce_scatter, all_gather, broadcast, transfer };

// Members agree on an operation when their headers are the same.
struct Header {
  std::uint64_t sequence = 0, count = 0;
  Kind kind = Kind::all_reduce;
  ncclDataType_t type = ncclInt8;
  ncclRedOp_t reduce = ncclSum;
  std::int32_t root = 0;  // of a transfer the sender
  std::int32_t registered = 0;

  bool operator==(const Header&) const = default;
  bool has_root() const { return kind == Kind::broadcast || kind == Kind::transfer; }
  std::string text() const;
};
struct Operation {
  Header header;
  const void* in;
  void* out;
  bool hangs;
};
// Ends what a member does, with what its asynchronous error becomes.
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
  int size() const { return static_cast<int>(sockets_.size()); }
  ncclResult_t state() const;
  const char* error_text() const;  // which, once there is one, stays

  void join(const std::string& name);
  void join_in_background(const std::string& name);

  // Two members connect in their first transfer: a call is in progress until both have come. `then` is done after that.
  bool connects();
  void connect_in_background(const std::function<void()>& then);

  std::uint64_t begin();
  void run(const Operation& operation);

  void finalize();
  void leave();
  void abort();

 private:
  // For rank 0 to learn who has come, and for them that all have.
  void await_members(const std::string& name);
  void join_hub(const std::string& name);

  void lead(const Operation& operation);
  void follow(const Operation& operation);
  // Nothing moves before all have come. The first who disagrees is enough for rank 0 to tell all.
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
  void hang() const;
  void stay() const;

  void fail(const Failure& failure);
  void shut();
  int socket_of(int rank) const { return sockets_[static_cast<std::size_t>(rank)]; }

  const int rank_;
  const bool blocks_;         // calls wait until they are done
  std::vector<int> sockets_;  // of rank 0 to each other rank; of the others the first, to rank 0
  int listener_ = -1, newcomer_ = -1;
  const int abort_event_;
  std::atomic<bool> aborted_ = false;
  std::thread joiner_;
  std::mutex operation_;  // held by the one that is under way

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool joined_ = false, finalizes_ = false, connected_ = false;
  std::uint64_t sequence_ = 0, pending_ = 0;
  ncclResult_t error_ = ncclSuccess;
  std::string error_text_;
};

}  // namespace ms::emulated::nccl
