#include "net/measure/fabric_config.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <string_view>

#include "base/number.h"
#include "base/text.h"
#include "slurm/hostlist.h"

namespace ms::net {
namespace {

// NCCL's own defaults (2.30).
constexpr int kTimeout = 20, kRetryCount = 7;
constexpr int kMostRetries = 7;  // three bits

bool is_of_the_fabric(std::string_view variable) {
  return variable.starts_with("NCCL_") || variable.starts_with("UCX_") || variable.starts_with("OMPI_MCA_btl");
}

std::optional<int> number(const FabricFacts& facts, const std::string& variable) {
  const auto found = facts.environment.find(variable);
  if (found == facts.environment.end()) return std::nullopt;
  return whole_number<int>(found->second);
}

std::string text_of(const FabricFacts& facts, const std::string& variable) {
  const auto found = facts.environment.find(variable);
  return found == facts.environment.end() ? "" : found->second;
}

std::vector<Gid> gids_of(const Sysroot& root, const std::string& directory) {
  std::vector<Gid> gids;
  for (const std::string& name : root.list(directory + "/gids")) {
    const std::string gid = root.read(directory + "/gids/" + name).value_or("");
    if (gid.find_first_not_of("0:") == std::string::npos) continue;  // an empty row
    gids.push_back({.index = leading_number<int>(name).value_or(0),
                    .type = root.read(directory + "/gid_attrs/types/" + name).value_or(""),
                    .is_ipv4 = gid.starts_with("0000:0000:0000:0000:0000:ffff:")});
  }
  std::ranges::sort(gids, {}, &Gid::index);
  return gids;
}

std::map<std::string, bool> switches_of(const Sysroot& root, const std::string& directory) {
  std::map<std::string, bool> on;
  for (const std::string& priority : root.list(directory))
    if (const std::optional<std::int64_t> value = root.read_int(directory + "/" + priority)) on[priority] = *value != 0;
  return on;
}

class Judge {
 public:
  Judge(const std::vector<NodeFacts>& nodes, double flap_s, const clos::Fabric* fabric)
      : nodes_(nodes), flap_s_(flap_s), fabric_(fabric) {}

  std::vector<Finding> run() {
    for (const NodeFacts& node : nodes_) {
      retries(node);
      names(node);
      gids(node);
      adapters(node);
      if (fabric_ != nullptr) planned(node);
    }
    differences();
    return merged();
  }

 private:
  void find(const NodeFacts& node, std::string code, Severity severity, std::string message, std::string remedy = {}) {
    found_.emplace_back(node.node, Finding{.code = std::move(code),
                                           .severity = severity,
                                           .blame = Blame::user,
                                           .message = std::move(message),
                                           .remedy = std::move(remedy)});
  }

  static bool has_adapters(const FabricFacts& facts) {
    return std::ranges::any_of(facts.adapters, [](const auto& a) { return a.second.state == "ACTIVE"; }) &&
           number(facts, "NCCL_IB_DISABLE").value_or(0) == 0;
  }

  void retries(const NodeFacts& node) {
    const std::optional<int> timeout = number(node.facts, "NCCL_IB_TIMEOUT"),
                             retry = number(node.facts, "NCCL_IB_RETRY_CNT");
    if (retry && (*retry > kMostRetries || *retry < 0)) {
      find(node, "net.retry", Severity::warning,
           fmt::format("NCCL_IB_RETRY_CNT={}: adapters have three bits for it", *retry), "set at most 7");
    }
    if (timeout && (*timeout < 1 || *timeout > 31)) {
      find(node, "net.retry", Severity::warning, fmt::format("NCCL_IB_TIMEOUT={}: 1 to 31", *timeout));
      return;
    }
    if (!timeout && !retry && !has_adapters(node.facts)) return;  // nothing here would obey it
    const double window_s =
        retry_window_s(timeout.value_or(kTimeout), std::clamp(retry.value_or(kRetryCount), 0, kMostRetries));
    if (window_s > flap_s_) return;
    find(node, "net.retry", Severity::warning,
         fmt::format("NCCL gives up on a link that is silent for {}, and links may flap for {}",
                     format_duration(window_s), format_duration(flap_s_)),
         fmt::format("NCCL_IB_TIMEOUT={}", least_timeout()));
  }
  int least_timeout() const {
    int timeout = 1;
    while (timeout < 31 && retry_window_s(timeout, kRetryCount) <= flap_s_) ++timeout;
    return timeout;
  }

  void names(const NodeFacts& node) {
    if (const std::string list = text_of(node.facts, "NCCL_SOCKET_IFNAME"); !list.empty()) {
      const bool any = std::ranges::any_of(
          node.facts.interfaces, [&](const auto& i) { return i.second.is_up && nccl_selects(list, i.first); });
      if (!any) {
        find(node, "net.interface", Severity::critical,
             fmt::format("NCCL_SOCKET_IFNAME={} selects no interface that is up; there are {}", list,
                         names_up(node.facts)));
      }
    }
    if (const std::string list = text_of(node.facts, "NCCL_IB_HCA"); !list.empty()) {
      const bool any = std::ranges::any_of(node.facts.adapters, [&](const auto& a) {
        return a.second.state == "ACTIVE" && nccl_selects(list, a.first);
      });
      if (!any) {
        find(node, "net.hca", Severity::critical,
             fmt::format("NCCL_IB_HCA={} selects no adapter that is active", list));
      }
    }
    if (number(node.facts, "NCCL_IB_DISABLE").value_or(0) != 0 &&
        std::ranges::any_of(node.facts.adapters, [](const auto& a) { return a.second.state == "ACTIVE"; })) {
      find(node, "net.hca", Severity::warning, "NCCL_IB_DISABLE=1, and there are active adapters: NCCL uses sockets");
    }
  }
  static std::string names_up(const FabricFacts& facts) {
    std::string text;
    for (const auto& [name, interface] : facts.interfaces)
      if (interface.is_up) text += (text.empty() ? "" : ", ") + name;
    return text.empty() ? "none" : text;
  }

  bool is_used(const FabricFacts& facts, const std::string& adapter) const {
    const std::string list = text_of(facts, "NCCL_IB_HCA");
    return list.empty() || nccl_selects(list, adapter);
  }

  void gids(const NodeFacts& node) {
    const std::optional<int> index = number(node.facts, "NCCL_IB_GID_INDEX");
    for (const auto& [name, adapter] : node.facts.adapters) {
      if (adapter.link_layer != "Ethernet" || adapter.state != "ACTIVE" || !is_used(node.facts, name)) continue;
      if (index && *index >= 0) {
        const auto gid = std::ranges::find(adapter.gids, *index, &Gid::index);
        if (gid == adapter.gids.end()) {
          find(node, "net.gid", Severity::critical,
               fmt::format("NCCL_IB_GID_INDEX={}: {} has no such GID", *index, name));
        } else if (gid->type.find("v2") == std::string::npos) {
          find(node, "net.gid", Severity::warning,
               fmt::format("NCCL_IB_GID_INDEX={} of {} is {}, not RoCE v2", *index, name, gid->type));
        } else if (!gid->is_ipv4) {
          find(node, "net.gid", Severity::warning,
               fmt::format("NCCL_IB_GID_INDEX={} of {} is no IPv4 address", *index, name));
        }
      } else if (std::ranges::none_of(adapter.gids, [](const Gid& gid) {
                   return gid.type.find("v2") != std::string::npos && gid.is_ipv4;
                 })) {
        find(node, "net.gid", Severity::warning, fmt::format("{} has no RoCE v2 GID of an IPv4 address", name));
      }
    }
  }

  void adapters(const NodeFacts& node) {
    const std::optional<int> traffic_class = number(node.facts, "NCCL_IB_TC");
    for (const auto& [name, adapter] : node.facts.adapters) {
      if (!is_used(node.facts, name)) continue;
      if (adapter.state != "ACTIVE") {
        // An adapter that NCCL_IB_HCA does not name may be a second port without a cable.
        const bool named = !text_of(node.facts, "NCCL_IB_HCA").empty();
        find(node, "net.hca", named ? Severity::critical : Severity::warning,
             fmt::format("{} is {}", name, adapter.state));
        continue;
      }
      if (adapter.link_layer != "Ethernet") continue;
      const auto interface = node.facts.interfaces.find(adapter.interface);
      constexpr int kMtuFor4096 = 4200;
      if (interface != node.facts.interfaces.end() && interface->second.mtu < kMtuFor4096) {
        find(node, "net.mtu", Severity::warning,
             fmt::format("{} has MTU {}: RoCE needs 4200 for packets of 4096 bytes", adapter.interface,
                         interface->second.mtu));
      }
      if (traffic_class && adapter.traffic_class >= 0 && *traffic_class != adapter.traffic_class) {
        find(node, "net.qos", Severity::warning,
             fmt::format("NCCL_IB_TC={}, and {} puts its packets into class {}", *traffic_class, name,
                         adapter.traffic_class));
      }
      for (const auto& [priority, on] : adapter.ecn_np) {
        const auto other = adapter.ecn_rp.find(priority);
        if (other != adapter.ecn_rp.end() && on != other->second) {
          find(node, "net.qos", Severity::warning,
               fmt::format("{}: ECN of priority {} is on for {} alone", name, priority, on ? "receiving" : "sending"));
        }
      }
    }
  }

  // Compares a node with the settings and ports that a forecast for the fabric file assumes.
  void planned(const NodeFacts& node) {
    const auto expect = [&](const char* variable, int by_default, std::int64_t planned) {
      const int here = number(node.facts, variable).value_or(by_default);
      if (here == planned) return;
      find(node, "net.plan", Severity::warning,
           fmt::format("{} is {}, and {} in the fabric file", variable, here, planned),
           fmt::format("{}={}", variable, planned));
    };
    expect("NCCL_IB_QPS_PER_CONNECTION", 1, fabric_->roce.queue_pairs);
    if (fabric_->leaf.rails) expect("NCCL_PXN_DISABLE", 0, fabric_->roce.pxn ? 0 : 1);
    if (fabric_->host.ports > 1) expect("NCCL_IB_MERGE_NICS", 1, 1);
    expect("NCCL_IB_ADAPTIVE_ROUTING", 0, fabric_->ecmp.hash == "adaptive" ? 1 : 0);  // NCCL's default for RoCE
    std::int64_t ports = 0;
    for (const auto& [name, adapter] : node.facts.adapters) {
      if (adapter.link_layer != "Ethernet" || adapter.state != "ACTIVE" || !is_used(node.facts, name)) continue;
      ++ports;
      const int gbps = leading_number<int>(adapter.rate).value_or(0);
      if (gbps == 0 || gbps == fabric_->host.port_gbps) continue;
      find(node, "net.plan", Severity::warning,
           fmt::format("{} has {}, and {:g} Gbit/s in the fabric file", name, adapter.rate, fabric_->host.port_gbps));
    }
    const std::int64_t planned = fabric_->host.nics * fabric_->host.ports;
    if (ports == planned) return;
    find(node, "net.plan", Severity::warning,
         fmt::format("{} active RoCE ports are used, and {} in the fabric file", ports, planned));
  }

  // Adds a finding for each node whose value differs from the most frequent one, which is assumed to be intended.
  void compare(std::string_view code, std::string_view what,
               const std::function<std::string(const FabricFacts&)>& value) {
    std::map<std::string, int> counts;
    for (const NodeFacts& node : nodes_) ++counts[value(node.facts)];
    if (counts.size() < 2) return;
    const auto most = std::ranges::max_element(counts, {}, [](const auto& c) { return c.second; });
    for (const NodeFacts& node : nodes_) {
      const std::string here = value(node.facts);
      if (here == most->first) continue;
      find(node, std::string(code), Severity::warning,
           fmt::format("{} is {}, and {} on {} of {} nodes", what, here.empty() ? "not set" : here,
                       most->first.empty() ? "not set" : most->first, most->second, nodes_.size()));
    }
  }
  void differences() {
    std::set<std::string> variables, interfaces, adapters;
    for (const NodeFacts& node : nodes_) {
      for (const auto& [name, value] : node.facts.environment) variables.insert(name);
      for (const auto& [name, value] : node.facts.interfaces) interfaces.insert(name);
      for (const auto& [name, value] : node.facts.adapters) adapters.insert(name);
    }
    for (const std::string& name : variables)
      compare("net.differs", name, [&](const FabricFacts& facts) { return text_of(facts, name); });
    for (const std::string& name : interfaces) {
      const auto of = [&](const FabricFacts& facts) {
        const auto found = facts.interfaces.find(name);
        return found == facts.interfaces.end() ? InterfaceFacts{} : found->second;
      };
      if (std::ranges::any_of(nodes_, [&](const NodeFacts& node) { return !node.facts.interfaces.contains(name); }))
        continue;
      compare("net.mtu", "the MTU of " + name, [&](const FabricFacts& f) { return std::to_string(of(f).mtu); });
      compare("net.differs", "the speed of " + name,
              [&](const FabricFacts& f) { return std::to_string(of(f).speed_mbps) + " Mbit/s"; });
    }
    compare("net.hca", "the number of active adapters", [](const FabricFacts& facts) {
      return std::to_string(
          std::ranges::count_if(facts.adapters, [](const auto& a) { return a.second.state == "ACTIVE"; }));
    });
    for (const std::string& name : adapters) {
      compare("net.hca", "the rate of " + name, [&](const FabricFacts& facts) {
        const auto found = facts.adapters.find(name);
        return found == facts.adapters.end() ? std::string() : found->second.rate;
      });
    }
  }

  // The same of several nodes is one finding.
  std::vector<Finding> merged() const {
    std::vector<std::pair<Finding, std::vector<std::string>>> merged;
    for (const auto& [node, finding] : found_) {
      const auto same = std::ranges::find_if(merged, [&, &finding = finding](const auto& other) {
        return other.first.code == finding.code && other.first.message == finding.message;
      });
      if (same == merged.end()) {
        merged.emplace_back(finding, std::vector{node});
      } else {
        same->second.push_back(node);
      }
    }
    std::vector<Finding> result;
    for (auto& [finding, nodes] : merged) {
      finding.entity = slurm::fold_hostlist(nodes);
      result.push_back(std::move(finding));
    }
    return result;
  }

  const std::vector<NodeFacts>& nodes_;
  double flap_s_;
  const clos::Fabric* fabric_;  // null: none to compare with
  std::vector<std::pair<std::string, Finding>> found_;
};

}  // namespace

FabricFacts gather_facts(const Sysroot& root, char* const* environment) {
  FabricFacts facts;
  for (char* const* entry = environment; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos || !is_of_the_fabric(text)) continue;
    facts.environment.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  for (const std::string& name : root.list("/sys/class/net")) {
    const std::string directory = "/sys/class/net/" + name;
    if (name == "lo" || !root.exists(directory + "/mtu")) continue;
    const std::string state = root.read(directory + "/operstate").value_or("unknown");
    facts.interfaces[name] = {.is_up = state == "up" || state == "unknown",
                              .mtu = static_cast<int>(root.read_int(directory + "/mtu").value_or(0)),
                              .speed_mbps = std::max<std::int64_t>(0, root.read_int(directory + "/speed").value_or(0))};
  }
  const std::string infiniband = "/sys/class/infiniband";
  for (const std::string& device : root.list(infiniband)) {
    const std::vector<std::string> interfaces = root.list(infiniband + "/" + device + "/device/net");
    for (const std::string& port : root.list(infiniband + "/" + device + "/ports")) {
      const std::string directory = infiniband + "/" + device + "/ports/" + port;
      const std::string state = root.read(directory + "/state").value_or("");
      const std::size_t colon = state.find(": ");
      AdapterFacts adapter{.state = colon == std::string::npos ? state : state.substr(colon + 2),
                           .link_layer = root.read(directory + "/link_layer").value_or(""),
                           .rate = root.read(directory + "/rate").value_or(""),
                           .interface = interfaces.empty() ? "" : interfaces.front(),
                           .traffic_class = -1,
                           .gids = gids_of(root, directory),
                           .ecn_np = {},
                           .ecn_rp = {}};
      // "Global tclass=106"
      const std::string traffic = root.read(infiniband + "/" + device + "/tc/" + port + "/traffic_class").value_or("");
      if (const std::size_t at = traffic.find('='); at != std::string::npos)
        adapter.traffic_class = leading_number<int>(traffic.substr(at + 1)).value_or(adapter.traffic_class);
      if (!adapter.interface.empty()) {
        const std::string ecn = "/sys/class/net/" + adapter.interface + "/ecn/";
        adapter.ecn_np = switches_of(root, ecn + "roce_np/enable");
        adapter.ecn_rp = switches_of(root, ecn + "roce_rp/enable");
      }
      if (adapter.link_layer == "Ethernet" && adapter.ecn_np.empty())
        facts.not_readable.push_back(device + "/" + port + ": ECN");
      facts.adapters.emplace(device + "/" + port, std::move(adapter));
    }
  }
  // Only the vendor's tools tell these, and they take root.
  if (!facts.adapters.empty()) {
    facts.not_readable.emplace_back("PFC and trust");
    facts.not_readable.emplace_back("adaptive retransmission");
  }
  return facts;
}

bool nccl_selects(const std::string& list, const std::string& name) {
  std::string_view rest = list;
  const bool all_others = rest.starts_with('^');
  if (all_others) rest.remove_prefix(1);
  const bool whole = rest.starts_with('=');
  if (whole) rest.remove_prefix(1);
  const std::size_t slash = name.find('/');
  const std::string_view device = std::string_view(name).substr(0, slash);
  const std::string_view port = slash == std::string::npos ? "" : std::string_view(name).substr(slash + 1);
  bool listed = false;
  for (const std::string& entry : split(rest, ',')) {
    const std::size_t colon = entry.find(':');
    const std::string_view wanted = std::string_view(entry).substr(0, colon);
    const bool same_port = colon == std::string::npos || std::string_view(entry).substr(colon + 1) == port;
    listed = listed || (same_port && (whole ? device == wanted : device.starts_with(wanted)));
  }
  return listed != all_others;
}

double retry_window_s(int ib_timeout, int ib_retry_count) {
  return 4.096e-6 * std::exp2(ib_timeout) * (ib_retry_count + 1);
}

std::vector<Finding> judge_config(const std::vector<NodeFacts>& nodes, double flap_s, const clos::Fabric* fabric) {
  return Judge(nodes, flap_s, fabric).run();
}

}  // namespace ms::net
