#include "net/judge/nccl_choices.h"

#include <algorithm>
#include <functional>
#include <map>

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
      for (const auto& [text, times] : host.warnings) find(name, "nccl.warning", Severity::warning, text, "");
    }
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
    if (log_.is_cut()) not_run_.emplace_back("all of these logs: they say more than is kept of them");
    return {.findings = folded(), .not_run = std::move(not_run_)};
  }

 private:
  bool any_host(const std::function<bool(const NcclHost&)>& has) const {
    return std::ranges::any_of(hosts_, [&](const auto& host) { return has(host.second); });
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
      unknown_adapters_ = true;
    }
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
    find(name, "nccl.gdr", nowhere ? Severity::note : Severity::warning,
         fmt::format("{} of {} over InfiniBand or RoCE without GPUDirect RDMA: bytes go through the host's memory{}{}",
                     staged, plural(static_cast<std::size_t>(all), "connection"),
                     nowhere ? "; no host has it, so it may not be there to have" : "",
                     set_here(host, {"NCCL_NET_GDR_LEVEL", "NCCL_NET_GDR_READ"})),
         "load nvidia_peermem, or use a kernel and driver with DMA-BUF; GPU and adapter below one PCIe switch");
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

  void find(const std::string& name, std::string code, Severity severity, std::string message, std::string remedy) {
    std::vector<std::string>& hosts = found_[{
        .code = std::move(code), .severity = severity, .message = std::move(message), .remedy = std::move(remedy)}];
    if (hosts.empty() || hosts.back() != name) hosts.push_back(name);
  }
  std::vector<Finding> folded() const {
    std::vector<Finding> findings;
    for (const auto& [said, hosts] : found_) {
      findings.push_back({.code = said.code,
                          .severity = said.severity,
                          .blame = Blame::fabric,
                          .entity = slurm::fold_hostlist(hosts),
                          .message = said.message,
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
  std::map<Said, std::vector<std::string>> found_;
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
      {"nccl.warning", "A warning of NCCL."}};
  return kCodes;
}

NcclJudged judge_nccl(const NcclLog& log) { return ChoiceJudge(log).run(); }

}  // namespace ms::net
