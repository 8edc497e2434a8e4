// Reads what NCCL writes about its own choices: the lines of its log with NCCL_DEBUG=INFO and
// NCCL_DEBUG_SUBSYS=INIT,GRAPH,NET,P2P,SHM,ENV,COLL (transport/*.cc, graph/search.cc, init.cc and enqueue.cc of NCCL
// 2.12 to 2.31), and the files of NCCL_TOPO_DUMP_FILE and NCCL_GRAPH_DUMP_FILE (graph/xml.cc). Everything read is
// another program's text: lines and counts are bounded, and what is not understood is passed over.
#pragma once

#include <compare>
#include <cstdint>
#include <istream>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "net/measure/nccl_attempts.h"
#include "net/measure/nccl_calls.h"

namespace ms::net {

// The rings that a rank found in its node: before NCCL takes the least of all ranks.
struct NcclRings {
  int channels = 0;
  std::string intra, inter;  // the worst hop between GPUs, and to the network: NVL, PIX, PXB, PHB, SYS
  auto operator<=>(const NcclRings&) const = default;
};

// Where the NVLinks of a GPU lead.
struct NcclNvlinks {
  bool to_switch = false;
  std::set<std::int64_t> to;  // other GPUs, by PCI bus id
};

// One host, as its processes wrote; of a dumped XML file, what is in it.
struct NcclHost {
  static constexpr std::int64_t kSeveral = -1;  // GPUs of one NVML number: each container counts its own from 0

  std::set<std::int64_t> processes;
  std::set<std::string> networks;            // that were taken: "IB", "Socket", a plugin's name
  std::set<std::string> adapters;            // that the IB transport found: "mlx5_0:1/RoCE"
  std::map<std::string, std::int64_t> ways;  // connections by what they go over: "P2P/CUMEM", "NET/IB/GDRDMA", "SHM"
  std::map<std::string, std::int64_t> receives;        // as ways, of what other hosts send to this one
  std::set<std::string> staged, direct_over;           // devices of "NET/IB" without and with GPUDirect RDMA: "0", "1"
  std::set<std::string> interfaces;                    // of the socket transport: "eth0:10.0.0.1"
  std::map<std::pair<int, int>, std::int64_t> shared;  // connections over "SHM", by the two GPUs' NVML numbers
  std::map<int, std::int64_t> gpus;                    // PCI bus id, or kSeveral, by NVML number
  std::map<std::int64_t, NcclNvlinks> links;           // by PCI bus id: GPUs of the topology that processes print
  std::map<std::string, NcclRings> rings;              // by communicator, the least of its ranks
  std::optional<NcclRings> dumped_rings;               // of a dumped graph, which does not name its communicator
  std::map<std::string, std::string> settings;         // NCCL's variables that were set
  std::map<std::string, std::int64_t> warnings;        // how often, by nccl_warning_of()
  int channels = 0, ranks = 0;                         // of the largest communicator: of collectives, as NCCL took them
  std::map<std::string, std::int64_t> nvlinks;         // by GPU ("0"), of a dumped topology
  std::map<std::string, bool> direct;                  // by adapter, likewise: GPUDirect RDMA
  bool has_nvlink = false, found_no_adapter = false;
  bool has_multicast = false, lacks_multicast = false;  // both: of some GPUs; neither: no line tells

  // Whether NVLinks join two GPUs, directly or through switches; nullopt: these logs do not tell.
  std::optional<bool> are_joined(int nvml, int other_nvml) const;
};

// The ranks of a communicator.
struct NcclRanks {
  int all = 0;         // that it has
  std::set<int> seen;  // of which there is a line
};

// Several logs, by host.
class NcclLog {
 public:
  static constexpr std::size_t kLongestLine = 8192;
  static constexpr std::size_t kLargestXml = std::size_t{16} << 20;
  static constexpr std::size_t kMostHosts = 65536;
  static constexpr std::size_t kMostOfAHost = 4096;

  // Looks through a log, or a dumped XML file, for where attempts of its job begin. All of them before read(), which
  // then leaves out those before the last one. Returns the number of lines that are NCCL's.
  std::int64_t find_attempts(std::istream& in);
  // Reads a log to its end, or a dumped XML file, whose host is `file`. A line that is longer counts with its
  // beginning. Returns the number of lines or elements that are NCCL's.
  std::int64_t read(std::istream& in, const std::string& file);
  const std::map<std::string, NcclHost>& hosts() const { return hosts_; }
  const NcclCalls& calls() const { return calls_; }
  // Communicators by their ids.
  const std::map<std::string, NcclRanks>& ranks() const { return ranks_; }
  // Those that were left out.
  const std::vector<NcclAttempt>& earlier_attempts() const { return attempts_.earlier(); }
  bool has_graphs() const { return has_graphs_; }
  bool has_ways() const { return has_ways_; }
  bool is_cut() const { return is_cut_ || calls_.is_cut(); }  // there was more than is kept

 private:
  struct Thread {      // of a process: the communicator that it opens
    std::string comm;  // empty: not known
    int ranks = 0;
    std::optional<std::int64_t> gpu = {};  // whose links it prints
  };
  std::int64_t read_xml(std::string_view text, const std::string& file);
  void take(std::string_view host, std::int64_t process, std::string_view thread, bool warns, std::string_view text);
  void choice(NcclHost& host, Thread& thread, const std::string& process, std::string_view text);
  void opens(NcclHost& host, Thread& thread, const std::string& process, std::string_view text);
  void connection(NcclHost& host, std::string_view text, std::string_view via);
  void topology(NcclHost& host, Thread& thread, std::string_view text);
  template <class Map, class Key>
  auto* kept(Map& map, const Key& key, std::size_t most);

  std::map<std::string, NcclHost> hosts_;
  std::map<std::string, Thread> threads_;     // by "host:process:thread"
  std::map<std::string, std::string> comms_;  // communicators by "host:process" and their addresses there
  std::map<std::string, NcclRanks> ranks_;
  NcclAttempts attempts_;
  NcclCalls calls_;
  bool has_graphs_ = false, has_ways_ = false, is_cut_ = false;
};

// A warning without what differs each time the same fault is met: ports, ids, lengths and memory addresses become "*".
// Kept are the peer's address, ranks, devices, status and error numbers.
std::string nccl_warning_of(std::string_view text);

// "P2P/CUMEM", "SHM", "NET/IB/GDRDMA", "NET/Socket" of what follows "via ": without devices and ways of sharing.
std::string way_of(std::string_view via);

}  // namespace ms::net
