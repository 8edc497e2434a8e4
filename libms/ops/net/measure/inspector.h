// InspectorLog reads what NCCL's Inspector plugin wrote: one JSON object per line and finished operation
// (plugins/profiler/inspector/json.cc of NCCL 2.28 to 2.30). Everything read is another program's text: records are
// bounded, and lines that are none are counted.
#pragma once

#include <compare>
#include <cstdint>
#include <istream>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace ms::net {

struct InspectorProcess {
  std::string host;
  std::int64_t pid = 0;
  auto operator<=>(const InspectorProcess&) const = default;
};

struct InspectorComm {
  std::string id, name;               // the name is empty before NCCL 2.30.3
  int ranks = 0, nodes = 0;           // of which processes may be missing here
  std::map<int, int> processes = {};  // by rank of the communicator, an index of InspectorLog::processes()
};

// A finished operation of one rank. Its time includes that of waiting for the last rank.
struct InspectorOp {
  int comm = 0, kind = 0;   // indices of InspectorLog::comms() and kinds()
  int rank = 0, peer = -1;  // the peer of a send or receive, -1 of a collective
  std::int64_t number = 0;  // the same on all ranks: counts operations of this kind
  std::int64_t size_bytes = 0;
  double time_us = 0, bus_gbs = 0;  // GB/s as nccl-tests counts them
  bool is_gpu_time = false;         // else of the CPU's clock
};

class InspectorLog {
 public:
  static constexpr std::size_t kLongestLine = std::size_t{1} << 20;  // verbose records hold the events of all channels
  static constexpr std::size_t kMostOps = std::size_t{1} << 23;

  // Reads a file to its end. Returns the number of operations in it.
  std::int64_t read(std::istream& in);
  const std::vector<InspectorProcess>& processes() const { return processes_; }
  const std::vector<InspectorComm>& comms() const { return comms_; }
  const std::vector<std::string>& kinds() const { return kinds_; }  // "AllReduce", "Send"
  const std::vector<InspectorOp>& ops() const { return ops_; }
  std::int64_t bad_lines() const { return bad_lines_; }
  bool is_cut() const { return is_cut_; }  // there was more than is kept

 private:
  bool take(std::string_view line);

  std::vector<InspectorProcess> processes_;
  std::vector<InspectorComm> comms_;
  std::vector<std::string> kinds_;
  std::vector<InspectorOp> ops_;
  std::map<InspectorProcess, int> process_index_;
  std::map<std::string, int> comm_index_, kind_index_;
  std::int64_t bad_lines_ = 0;
  bool is_cut_ = false;
};

}  // namespace ms::net
