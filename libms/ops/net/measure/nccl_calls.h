// NcclCalls compares the collectives that the processes of a communicator called, by the lines of
// NCCL_DEBUG_SUBSYS=COLL (enqueue.cc of NCCL): "AllReduce: opCount 29b sendbuff 0x1 recvbuff 0x2 count 256 datatype 7
// op 0 root 0 comm 0x3 [nranks=4] stream 0x4". Bounded; sends and receives, which differ by rank, are passed over.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace ms::net {

// The first call of a communicator at which its processes differ.
struct NcclDifference {
  struct Called {
    std::string what;                    // "AllReduce of 256, datatype 7, op 0"
    std::vector<std::string> processes;  // "host:process", at most NcclCalls::kMostNamed
    std::size_t count = 0;               // of processes, all
  };
  std::uint64_t op = 0;        // NCCL's opCount, which it prints in hexadecimal
  std::vector<Called> called;  // the most frequent first
};

class NcclCalls {
 public:
  static constexpr std::size_t kMostCalls = std::size_t{1} << 18;
  static constexpr std::size_t kMostNamed = 8;

  // `process` is "host:process"; `comm` the id of the communicator, empty where the log lacks it: communicators of one
  // size are then one, unless a process has two of them.
  void take(const std::string& process, std::string_view comm, std::string_view text);
  std::vector<NcclDifference> differences() const;
  std::size_t unknown() const { return unknown_; }  // lines whose communicator cannot be told from another one
  bool is_cut() const { return is_cut_; }

 private:
  struct Position {
    std::uint64_t op = 0, nth = 0;  // calls of one group share their opCount
    auto operator<=>(const Position&) const = default;
  };
  struct Comm {
    std::map<std::string, Position> last;  // by "host:process" and the communicator's address there
    std::map<Position, std::map<std::string, NcclDifference::Called>> calls;
    bool is_ambiguous = false;
  };
  std::map<std::string, Comm> comms_;
  std::size_t calls_ = 0, unknown_ = 0;
  bool is_cut_ = false;
};

}  // namespace ms::net
