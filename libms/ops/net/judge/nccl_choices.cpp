#include "net/judge/nccl_choices.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "base/text.h"
#include "slurm/hostlist.h"

namespace ms::net {
namespace {

using Hosts = std::map<std::string, NcclHost>;

bool has_way(const NcclHost& host, std::string_view kind) {
  return std::ranges::any_of(host.ways, [&](const auto& way) { return way.first.starts_with(kind); });
}
// Connections over InfiniBand or RoCE: through the host's memory, and with GPUDirect RDMA.
struct Rdma {
  std::int64_t staged = 0, direct = 0;
};
Rdma rdma_of(const std::map<std::string, std::int64_t>& ways) {
  Rdma rdma;
  for (const auto& [way, connections] : ways)
    if (way.starts_with("NET/IB")) (way.ends_with("/GDRDMA") ? rdma.direct : rdma.staged) += connections;
  return rdma;
}
// " (NCCL_IB_DISABLE=1 is set)" for those of the variables that are.
std::string set_here(const NcclHost& host, std::initializer_list<std::string_view> variables) {
  std::string text;
  for (const std::string_view variable : variables) {
    const auto setting = host.settings.find(std::string(variable));
    if (setting != host.settings.end())
      text += fmt::format("{}{}={}", text.empty() ? "" : ", ", setting->first, setting->second);
  }
  return text.empty() ? text : fmt::format(" ({} is set)", text);
}

// Meanings of a completion's status, and where to look: enum ibv_wc_status of rdma-core.
struct Completion {
  std::string_view status, meaning, remedy;
  Severity severity = Severity::warning;
};
constexpr std::array<Completion, 5> kCompletions{
    {{"5", "ended by an earlier error of the same connection", "look at the first error of this connection",
      Severity::note},
     {"10", "the peer refused access to its memory", "see the last error of the peer's process"},
     {"11", "the peer could not complete the request", "see the last error of the peer's process"},
     {"12", "no answer after all retries",
      "see whether the peer's process and node are alive, then its port, this port and the path: ms-netcheck locate"},
     {"13", "the peer had no buffer ready", "see whether the peer's process is alive and not stopped"}}};

// "Got completion from peer 10.0.0.2 with status=12 ...": the peer and the status; two empty texts of another warning.
std::pair<std::string, std::string> completion_in(const std::string& warning) {
  std::pair<std::string, std::string> completion;
  const std::size_t at = warning.find("Got completion from ");
  if (at == std::string::npos) return completion;
  for (const std::string& word : split(std::string_view(warning).substr(at + 20), ' ')) {
    if (completion.first.empty() && word != "peer") completion.first = word;
    if (word.starts_with("status=") && completion.second.empty()) completion.second = word.substr(7);
  }
  return completion;
}

class ChoiceJudge {
 public:
  explicit ChoiceJudge(const NcclLog& log) : log_(log), hosts_(log.hosts()) {}

  NcclJudged run() {
    for (const auto& [name, host] : hosts_) {
      sockets(name, host);
      shared_memory(name, host);
      direct(name, host);
      multicast(name, host);
      dumped(name, host);
      adapters(name, host);
      loopback(name, host);
      for (const auto& [text, times] : host.warnings) warning(name, text, times);
    }
    calls();
    if (unknown_adapters_)
      not_run_.emplace_back("whether adapters are left unused: no host took or found one, 'ms-netcheck config' looks");
    rings();
    if (std::ranges::count_if(hosts_, [](const auto& host) { return host.second.dumped_rings.has_value(); }) > 1)
      not_run_.emplace_back("dumped graphs beside each other: they do not tell whether they are of one group");
    if (!log_.has_ways()) not_run_.emplace_back("ways between ranks: no line tells them, NCCL_DEBUG=INFO does");
    if (!log_.has_graphs()) {
      not_run_.emplace_back(
          "rings that a node found, and its NVLinks: NCCL_DEBUG_SUBSYS=INIT,GRAPH,NET,P2P,SHM,ENV tells them");
    }
    silent_ranks();
    earlier_attempts();
    if (log_.is_cut()) not_run_.emplace_back("all of these logs: they say more than is kept of them");
    return {.findings = folded(), .not_run = std::move(not_run_)};
  }

 private:
  bool any_host(const std::function<bool(const NcclHost&)>& has) const {
    return std::ranges::any_of(hosts_, [&](const auto& host) { return has(host.second); });
  }

  // Ranks of the largest communicator without a line: their hosts cannot be judged.
  void silent_ranks() {
    const auto& all = log_.ranks();
    const auto largest = std::ranges::max_element(all, {}, [](const auto& comm) { return comm.second.all; });
    if (largest == all.end()) return;
    const auto& [comm, ranks] = *largest;
    const auto missing = static_cast<std::int64_t>(ranks.all) - static_cast<std::int64_t>(ranks.seen.size());
    if (missing <= 0) return;
    int first = 0;
    while (ranks.seen.contains(first)) ++first;
    not_run_.push_back(
        fmt::format("{} of the {} ranks of communicator {} (rank {} is the first): these logs have no line "
                    "of theirs",
                    missing, ranks.all, comm, first));
  }

  void earlier_attempts() {
    for (const NcclAttempt& it : log_.earlier_attempts())
      not_run_.push_back(fmt::format("an earlier attempt in these logs: {} on {}", plural(it.processes, "process"),
                                     slurm::fold_hostlist(it.hosts)));
  }

  void sockets(const std::string& name, const NcclHost& host) {
    if (!host.networks.contains("Socket") && !has_way(host, "NET/Socket")) return;
    const std::string set = set_here(host, {"NCCL_NET", "NCCL_IB_DISABLE", "NCCL_IB_HCA", "NCCL_NET_PLUGIN"});
    if (!host.adapters.empty()) {
      find(name, "nccl.socket", Severity::warning,
           fmt::format("sends over sockets, and found {}{}", plural(host.adapters.size(), "adapter"), set),
           "unset what keeps NCCL from them");
    } else if (has_adapters_) {
      find(name, "nccl.socket", Severity::warning,
           fmt::format("sends over sockets where other hosts do not{}{}",
                       host.found_no_adapter ? ": it found no adapter" : "", set),
           "see that the process has /dev/infiniband and libibverbs, in its container too, and a port that is up");
    } else {
      if (const auto disabled = host.settings.find("NCCL_IB_DISABLE");
          disabled != host.settings.end() && disabled->second != "0") {
        find(name, "nccl.socket", Severity::note, fmt::format("sends over sockets{}, as the other hosts do", set),
             "unset NCCL_IB_DISABLE if the hosts have InfiniBand or RoCE adapters");
      }
      unknown_adapters_ = true;
    }
  }

  // NCCL opens fewer adapters on one host: what the others send over the missing ones has no counterpart.
  void adapters(const std::string& name, const NcclHost& host) {
    if (!has_fewer_adapters(host) || host.networks.contains("Socket")) return;
    std::vector<std::string> missing;
    std::ranges::set_difference(usual_adapters_, host.adapters, std::back_inserter(missing));
    const bool are_named_alike = std::ranges::includes(usual_adapters_, host.adapters);
    find(name, "nccl.adapters", Severity::warning,
         fmt::format("uses {}, and other hosts use {}{}{}", plural(host.adapters.size(), "adapter"),
                     usual_adapters_.size(),
                     are_named_alike ? fmt::format(": it lacks {}", fmt::join(missing, ", ")) : "",
                     set_here(host, {"NCCL_IB_HCA", "NCCL_IGNORE_NET_MISMATCH"})),
         "see that the port is up and that the process sees the device, in its container too: ibv_devinfo");
  }

  // The address of a loopback leads every other host to itself. A host without connections to others may use it.
  void loopback(const std::string& name, const NcclHost& host) {
    const bool is_loopback = !host.interfaces.empty() && std::ranges::all_of(host.interfaces, [](const auto& of) {
      return of.find(":127.") != std::string::npos || of.ends_with(":::1");
    });
    if (!is_loopback || hosts_.size() < 2 || !(has_way(host, "NET/") || host.ways.empty())) return;
    find(name, "nccl.loopback", Severity::warning,
         fmt::format("announces {} to the other hosts, which leads each of them to itself{}", *host.interfaces.begin(),
                     set_here(host, {"NCCL_SOCKET_IFNAME"})),
         "unset NCCL_SOCKET_IFNAME, or name the interface that leads to the other hosts");
  }

  void warning(const std::string& name, const std::string& text, std::int64_t times) {
    const auto& [peer, status] = completion_in(text);
    if (peer.empty() || status.empty()) {
      find(name, "nccl.warning", Severity::warning, text, "", times);
      return;
    }
    const auto known = std::ranges::find(kCompletions, status, &Completion::status);
    const bool is_known = known != kCompletions.end();
    find(name, "nccl.completion", is_known ? known->severity : Severity::warning,
         fmt::format("lost a connection with {}: status {}{}{}", peer, status, is_known ? ", " : "",
                     is_known ? known->meaning : ""),
         is_known ? std::string(known->remedy) : "", times);
  }

  // Processes of a communicator that call different collectives: the program's fault. Which of two is right is not
  // known.
  void calls() {
    for (const NcclDifference& difference : log_.calls().differences()) {
      std::vector<std::string> said;
      std::size_t all = 0;
      for (const NcclDifference::Called& called : difference.called) all += called.count;
      for (const NcclDifference::Called& called : difference.called) {
        said.push_back(fmt::format("{} of {} called {} ({}{})", called.count, all, called.what,
                                   fmt::join(called.processes, ", "),
                                   called.count > called.processes.size() ? ", ..." : ""));
      }
      const std::size_t others = difference.called[1].count;  // the next most frequent
      const bool is_clear = difference.called[0].count > others * 2;
      std::set<std::string> odd;
      for (std::size_t at = is_clear ? 1 : 0; at < difference.called.size(); ++at) {
        for (const std::string& process : difference.called[at].processes)
          odd.insert(process.substr(0, process.rfind(':')));
      }
      find(slurm::fold_hostlist(std::vector<std::string>(odd.begin(), odd.end())), "nccl.calls", Severity::critical,
           fmt::format("at opCount {:x} of a communicator, of its processes {}{}", difference.op, fmt::join(said, "; "),
                       is_clear ? "" : "; which is right is not known"),
           "compare the program's calls before this one: the processes took different branches");
    }
    if (log_.calls().unknown() > 0)
      not_run_.emplace_back(
          "calls of several communicators: NCCL_DEBUG_SUBSYS=INIT,COLL names the communicator of each");
  }

  // NCCL goes through the host's memory wherever it finds no other way between two GPUs, which is right for those that
  // no NVLink joins.
  void shared_memory(const std::string& name, const NcclHost& host) {
    const auto shm = host.ways.find("SHM");
    if (shm == host.ways.end()) return;
    std::int64_t joined = 0, apart = 0;
    for (const auto& [gpus, connections] : host.shared) {
      if (const std::optional<bool> are = host.are_joined(gpus.first, gpus.second))
        (*are ? joined : apart) += connections;
    }
    const bool unknown = host.has_nvlink && joined + apart < shm->second;
    if (joined == 0 && !unknown && !has_p2p_) return;
    const std::string_view why = joined > 0 ? "and NVLinks join them"
                                 : unknown  ? "and it has NVLinks; no line tells whether they join these GPUs"
                                            : "where other hosts go from GPU to GPU; they may be of another kind";
    find(name, "nccl.shm", joined > 0 ? Severity::warning : Severity::note,
         fmt::format("{} between GPUs through the host's memory, {}{}",
                     plural(static_cast<std::size_t>(joined > 0 ? joined : shm->second), "connection"), why,
                     set_here(host, {"NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL"})),
         "unset those variables; show the job all GPUs in one container; see nvidia-smi topo -p2p r");
  }

  // Sends are compared with sends, and receives with receives: without NVLinks NCCL lets adapters write into a GPU, and
  // not read from it.
  void direct(const std::string& name, const NcclHost& host) {
    const Rdma sends = rdma_of(host.ways), receives = rdma_of(host.receives);
    const bool nowhere = !sends_direct_ && !receives_direct_;
    const bool reads = host.has_nvlink || receives.direct == 0;
    std::int64_t staged = 0, all = 0;
    if (nowhere || (sends_direct_ && reads)) staged += sends.staged, all += sends.staged + sends.direct;
    if (nowhere || receives_direct_) staged += receives.staged, all += receives.staged + receives.direct;
    if (staged == 0) return;
    // Some of its adapters have it: neither a module nor the driver is missing.
    const bool is_partial = !host.direct_over.empty() && std::ranges::none_of(host.staged, [&](const auto& of) {
      return host.direct_over.contains(of);
    });
    if (is_partial && lacks_adapters_) return;  // what goes to the host that lacks the adapter: nccl.adapters says it
    find(name, "nccl.gdr", nowhere ? Severity::note : Severity::warning,
         fmt::format("{} of {} over InfiniBand or RoCE without GPUDirect RDMA: bytes go through the host's memory{}{}",
                     staged, plural(static_cast<std::size_t>(all), "connection"),
                     nowhere ? "; no host has it, so it may not be there to have" : "",
                     set_here(host, {"NCCL_NET_GDR_LEVEL", "NCCL_NET_GDR_READ"})),
         is_partial ? fmt::format("see how adapter {} is connected: GPU and adapter belong below one PCIe switch",
                                  fmt::join(host.staged, ", "))
                    : "load nvidia_peermem, or use a kernel and driver with DMA-BUF; GPU and adapter below one PCIe "
                      "switch");
  }

  void multicast(const std::string& name, const NcclHost& host) {
    if (!host.lacks_multicast || !has_multicast_) return;
    find(name, "nccl.nvls", Severity::warning, "has no NVLink multicast, and other hosts have",
         "see that the fabric manager runs, and that its version is the driver's");
  }

  // A topology's GPUs and adapters, beside each other.
  void dumped(const std::string& name, const NcclHost& host) {
    std::int64_t most = 0;
    for (const auto& [gpu, links] : host.nvlinks) most = std::max(most, links);
    for (const auto& [gpu, links] : host.nvlinks) {
      if (links == most) continue;
      find(name, "nccl.nvlink", Severity::warning,
           fmt::format("GPU {} has {}, and others have {}", gpu, plural(static_cast<std::size_t>(links), "NVLink"),
                       most),
           "see nvidia-smi nvlink -s");
    }
    const bool some = std::ranges::any_of(host.direct, [](const auto& adapter) { return adapter.second; });
    for (const auto& [adapter, direct] : host.direct) {
      if (direct || !some) continue;
      find(name, "nccl.gdr", Severity::note, fmt::format("{} has no GPUDirect RDMA, and other adapters have", adapter),
           "");
    }
  }

  // NCCL takes the least channels and the worst types of all ranks: one node holds all of them down.
  void rings() {
    std::map<std::string, std::vector<std::pair<std::string, NcclRings>>> comms;
    for (const auto& [name, host] : hosts_)
      for (const auto& [comm, rings] : host.rings) comms[comm].emplace_back(name, rings);
    for (const auto& [comm, of] : comms) {
      const int most =
          std::ranges::max_element(of, {}, [](const auto& one) { return one.second.channels; })->second.channels;
      for (const auto& [name, rings] : of) {
        if (rings.channels == most) continue;
        find(name, "nccl.channels", Severity::warning,
             fmt::format("finds {} over {}/{}, and other hosts of the group {}: all use the fewest",
                         plural(static_cast<std::size_t>(rings.channels), "ring"), rings.intra, rings.inter, most),
             "compare the node's GPUs, adapters, PCIe and NVLinks with another's: ms-diag fleet");
      }
    }
  }

  void find(const std::string& name, std::string code, Severity severity, std::string message, std::string remedy,
            std::int64_t times = 0) {
    Found& found = found_[{
        .code = std::move(code), .severity = severity, .message = std::move(message), .remedy = std::move(remedy)}];
    if (found.hosts.empty() || found.hosts.back() != name) found.hosts.push_back(name);
    found.times += times;
  }
  std::vector<Finding> folded() const {
    std::vector<Finding> findings;
    for (const auto& [said, found] : found_) {
      findings.push_back(
          {.code = said.code,
           .severity = said.severity,
           .blame = said.code == "nccl.calls" ? Blame::user : Blame::fabric,
           .entity = slurm::fold_hostlist(found.hosts),
           .message = found.times > 1 ? fmt::format("{} ({} times)", said.message, found.times) : said.message,
           .remedy = said.remedy});
    }
    return findings;
  }

  struct Said {
    std::string code;
    Severity severity;
    std::string message, remedy;
    auto operator<=>(const Said&) const = default;
  };
  struct Found {
    std::vector<std::string> hosts;
    std::int64_t times = 0;  // that it was logged; 0: it is not a line of a log
  };
  // The adapters of most hosts that have any; of as many hosts, the larger set.
  std::set<std::string> usual_adapters() const {
    std::map<std::set<std::string>, std::size_t> sets;
    for (const auto& [name, host] : hosts_)
      if (!host.adapters.empty()) ++sets[host.adapters];
    const auto usual =
        std::ranges::max_element(sets, {}, [](const auto& set) { return std::pair(set.second, set.first.size()); });
    return usual == sets.end() ? std::set<std::string>() : usual->first;
  }

  bool has_fewer_adapters(const NcclHost& host) const {
    return !host.adapters.empty() && host.adapters.size() < usual_adapters_.size();
  }

  const NcclLog& log_;
  const Hosts& hosts_;
  // Whether any host has or does it: found once, as there may be 10,000 hosts.
  const bool has_adapters_ = any_host([](const NcclHost& host) {
    return std::ranges::any_of(host.networks, [](const std::string& network) { return network != "Socket"; });
  });
  const bool has_p2p_ =
      any_host([](const NcclHost& host) { return has_way(host, "P2P") && !host.ways.contains("SHM"); });
  const bool sends_direct_ = any_host([](const NcclHost& host) { return rdma_of(host.ways).direct > 0; });
  const bool receives_direct_ = any_host([](const NcclHost& host) { return rdma_of(host.receives).direct > 0; });
  const bool has_multicast_ =
      any_host([](const NcclHost& host) { return host.has_multicast && !host.lacks_multicast; });
  const std::set<std::string> usual_adapters_ = usual_adapters();
  const bool lacks_adapters_ = any_host([this](const NcclHost& host) { return has_fewer_adapters(host); });
  std::map<Said, Found> found_;
  std::vector<std::string> not_run_;
  bool unknown_adapters_ = false;
};

}  // namespace

const std::vector<NcclChoiceCode>& nccl_choice_codes() {
  static const std::vector<NcclChoiceCode> kCodes{
      {"nccl.socket", "NCCL uses sockets although this host or other hosts have adapters."},
      {"nccl.shm",
       "GPUs of a node communicate through host memory although NVLink connects them. Only a note if it is unknown "
       "whether NVLink connects them."},
      {"nccl.gdr", "Transfers between GPU and adapter go through host memory. Only a note if this is so on all hosts."},
      {"nccl.nvlink", "A GPU has fewer NVLinks than another GPU of its host."},
      {"nccl.nvls", "A host reports no NVLink multicast, but others have it."},
      {"nccl.channels", "A host found fewer rings than the others of its group, which limits the whole group."},
      {"nccl.adapters", "A host uses fewer InfiniBand or RoCE adapters than most other hosts."},
      {"nccl.loopback", "A host announces the address of its loopback interface to other hosts."},
      {"nccl.calls",
       "Processes of a communicator called different collectives, or with different sizes: an error of the program."},
      {"nccl.completion", "A connection over InfiniBand or RoCE failed. The message names the peer and the status."},
      {"nccl.warning",
       "A warning of NCCL. Numbers that differ each time (ports, ids, lengths) are folded into an asterisk."}};
  return kCodes;
}

NcclJudged judge_nccl(const NcclLog& log) { return ChoiceJudge(log).run(); }

}  // namespace ms::net
