#include "net/measure/counters.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/text.h"

namespace ms::net {
namespace {

// Error counters of an interface's statistics; rates of bytes and packets are left to others.
constexpr std::array<std::string_view, 8> kInterfaceFiles{"rx_errors",        "tx_errors",        "rx_dropped",
                                                          "tx_dropped",       "rx_crc_errors",    "rx_frame_errors",
                                                          "rx_missed_errors", "tx_carrier_errors"};

const CounterRule* rule_of(std::string_view name) {
  const auto& rules = counter_rules();
  const auto rule = std::ranges::find(rules, name, &CounterRule::name);
  return rule == rules.end() ? nullptr : &*rule;
}

bool counts_losses_of_the_link(std::string_view name) { return name == "link_downed" || name == "carrier_down_count"; }

}  // namespace

const std::vector<CounterRule>& counter_rules() {
  constexpr Severity kWarn = Severity::warning, kCritical = Severity::critical;
  static const std::vector<CounterRule> kRules{
      // /sys/class/infiniband/DEV/ports/P/counters
      {"link_downed", 0, kWarn, "the link went down"},
      {"link_error_recovery", 0, kWarn, "the link had to recover from errors"},
      {"symbol_error", 10, kWarn, "bits were damaged on the cable"},
      {"local_link_integrity_errors", 0, kWarn, "errors of the physical link exceeded its threshold"},
      {"excessive_buffer_overrun_errors", 0, kWarn, "the port's buffers overran"},
      {"port_rcv_errors", 10, kWarn, "damaged packets arrived"},
      {"port_rcv_remote_physical_errors", 10, kWarn, "packets arrived that were damaged before the last switch"},
      {"port_rcv_switch_relay_errors", 100, kWarn, "packets arrived that could not be forwarded"},
      {"port_rcv_constraint_errors", 0, kWarn, "packets of a foreign partition arrived"},
      {"port_xmit_constraint_errors", 0, kWarn, "packets of a foreign partition were not sent"},
      {"port_xmit_discards", 100, kWarn, "packets were dropped because the port was down or congested"},
      {"VL15_dropped", 100, kWarn, "management packets were dropped"},
      // hw_counters
      {"out_of_sequence", 1000, kWarn, "packets arrived out of order, or some were lost"},
      {"packet_seq_err", 1000, kWarn, "the other side asked for packets again"},
      {"implied_nak_seq_err", 1000, kWarn, "responses were missing"},
      {"out_of_buffer", 1000, kWarn, "messages arrived for which no buffer was ready"},
      {"rnr_nak_retry_err", 100, kWarn, "the other side was not ready"},
      {"local_ack_timeout_err", 0, kWarn, "no acknowledgement came in time: packets or links were lost"},
      {"req_transport_retries_exceeded", 0, kCritical, "connections were given up after all retries"},
      {"req_rnr_retries_exceeded", 0, kCritical, "connections were given up: the other side was never ready"},
      {"req_cqe_error", 0, kWarn, "requests ended with an error"},
      {"resp_cqe_error", 0, kWarn, "responses ended with an error"},
      {"req_remote_access_errors", 0, kWarn, "the other side refused access to its memory"},
      {"req_remote_invalid_request", 0, kWarn, "the other side did not understand a request"},
      {"resp_local_length_error", 0, kWarn, "a message was longer than the buffer for it"},
      {"resp_remote_access_errors", 0, kWarn, "the other side requested memory without permission"},
      {"rx_icrc_encapsulated", 0, kWarn, "RoCE packets arrived with a wrong checksum"},
      {"roce_adp_retrans", 1000, kWarn, "packets were retransmitted adaptively"},
      {"roce_adp_retrans_to", 100, kWarn, "adaptive retransmission ran into its timeouts"},
      {"roce_slow_restart", 1000, kWarn, "senders used RoCE slow restart"},
      {"rp_cnp_ignored", 0, kWarn, "congestion notification packets were ignored"},
      {"rp_cnp_handled", 1e6, kWarn, "senders were slowed down by congestion"},
      {"np_ecn_marked_roce_packets", 1e6, kWarn, "packets arrived that a congested switch had marked"},
      {"duplicate_request", 1000, kWarn, "requests arrived twice"},
      // /sys/class/net/IF
      {"carrier_down_count", 0, kWarn, "the interface lost its carrier"},
      {"rx_errors", 10, kWarn, "damaged packets arrived"},
      {"tx_errors", 10, kWarn, "packets could not be sent"},
      {"rx_crc_errors", 10, kWarn, "packets arrived with a wrong checksum"},
      {"rx_frame_errors", 10, kWarn, "damaged frames arrived"},
      {"rx_dropped", 1000, kWarn, "packets that arrived were dropped"},
      {"tx_dropped", 1000, kWarn, "packets to be sent were dropped"},
      {"rx_missed_errors", 1000, kWarn, "packets were dropped because receive buffers were full"},
      {"tx_carrier_errors", 0, kWarn, "the carrier was lost while sending"}};
  return kRules;
}

void CounterReader::read_file(const std::string& path, const std::string& name, PortCounts& counts) {
  if (refused_.contains(path)) return;
  if (const std::optional<std::int64_t> value = root_.read_int(path)) {
    counts.values[name] = *value;
  } else {
    refused_.insert(path);
  }
}

Snapshot CounterReader::read(double wall_s) {
  Snapshot snapshot{.wall_s = wall_s, .ports = {}, .restricted = {}};
  const std::string infiniband = "/sys/class/infiniband";
  const auto all_of = [&](const std::string& port, const std::string& directory, PortCounts& counts) {
    for (const std::string& name : root_.list(directory)) {
      const std::string path = directory + "/" + name;
      const bool known = rule_of(name) != nullptr;
      if (!known) continue;
      read_file(path, name, counts);
      if (refused_.contains(path)) snapshot.restricted.push_back(port + " " + name);
    }
  };
  for (const std::string& device : root_.list(infiniband)) {
    for (const std::string& number : root_.list(infiniband + "/" + device + "/ports")) {
      const std::string port = device + "/" + number, directory = infiniband + "/" + device + "/ports/" + number;
      PortCounts& counts = snapshot.ports[port];
      const std::optional<std::string> state = root_.read(directory + "/state");  // "4: ACTIVE"
      counts.is_up = !state || state->find("ACTIVE") != std::string::npos;
      all_of(port, directory + "/counters", counts);
      all_of(port, directory + "/hw_counters", counts);
    }
  }
  for (const std::string& name : root_.list("/sys/class/net")) {
    const std::string directory = "/sys/class/net/" + name;
    if (name == "lo" || !root_.exists(directory + "/carrier_down_count")) continue;
    const std::string state = root_.read(directory + "/operstate").value_or("unknown");
    const bool is_hardware = root_.exists(directory + "/device");
    if (!is_hardware && state == "down" && root_.read_int(directory + "/carrier_down_count").value_or(0) == 0) continue;
    // Bridges and what hangs on them carry containers, not the fabric: they come and go.
    if (!is_hardware && (root_.exists(directory + "/bridge") || root_.exists(directory + "/brport"))) continue;
    PortCounts& counts = snapshot.ports[name];
    counts.is_hardware = is_hardware;
    counts.is_up = state != "down" && state != "lowerlayerdown";
    read_file(directory + "/carrier_down_count", "carrier_down_count", counts);
    for (const std::string_view file : kInterfaceFiles)
      read_file(directory + "/statistics/" + std::string(file), std::string(file), counts);
  }
  return snapshot;
}

std::vector<Finding> judge_growth(const Snapshot& before, const Snapshot& after) {
  std::vector<Finding> found;
  const double hours = std::max(1.0, (after.wall_s - before.wall_s) / 3600);
  for (const auto& [port, then] : before.ports) {
    const auto now = after.ports.find(port);
    if (now == after.ports.end()) {
      if (!then.is_hardware) continue;
      found.push_back(
          {.code = "net.gone", .blame = Blame::node, .entity = port, .message = "the port is no longer there"});
      continue;
    }
    if (then.is_up && !now->second.is_up) {
      found.push_back(
          {.code = "net.down", .blame = Blame::fabric, .entity = port, .message = "the link is down, and was not"});
    }
    for (const auto& [name, value] : now->second.values) {
      const auto old = then.values.find(name);
      const CounterRule* rule = rule_of(name);
      if (rule == nullptr || old == then.values.end()) continue;
      const std::int64_t growth = value >= old->second ? value - old->second : value;
      if (static_cast<double>(growth) <= rule->per_hour * hours) continue;
      found.push_back({.code = counts_losses_of_the_link(name) ? "net.flap" : "net.counter",
                       .severity = rule->severity,
                       .blame = Blame::fabric,
                       .entity = port,
                       .message = fmt::format("{}: {} grew by {} in {}", rule->meaning, name, growth,
                                              format_duration(after.wall_s - before.wall_s)),
                       .measured = static_cast<double>(growth),
                       .limit = rule->per_hour * hours,
                       .unit = "events"});
    }
  }
  return found;
}

void FlapWatch::see(const Snapshot& snapshot) {
  if (begin_s_ < 0) begin_s_ = snapshot.wall_s;
  now_s_ = snapshot.wall_s;
  for (const auto& [name, counts] : snapshot.ports) {
    Port& port = ports_[name];
    std::int64_t counted = 0;
    for (const auto& [counter, value] : counts.values)
      if (counts_losses_of_the_link(counter)) counted += value;
    if (port.counted_before < 0) port.counted_before = counted;
    port.counted = counted - port.counted_before;
    if (!counts.is_up && port.down_since_s < 0) {
      port.down_since_s = snapshot.wall_s;
      if (port.downs++ == 0) port.first_s = snapshot.wall_s - begin_s_;
    } else if (counts.is_up && port.down_since_s >= 0) {
      port.longest_s = std::max(port.longest_s, snapshot.wall_s - port.down_since_s);
      port.down_since_s = -1;
    }
  }
}

std::vector<Finding> FlapWatch::findings() const {
  std::vector<Finding> found;
  for (const auto& [name, port] : ports_) {
    const bool is_down = port.down_since_s >= 0;
    const double longest_s = is_down ? std::max(port.longest_s, now_s_ - port.down_since_s) : port.longest_s;
    const auto times = std::max<std::int64_t>(port.downs, port.counted);
    if (times == 0 || (port.counted == 0 && longest_s < least_s_)) continue;
    found.push_back(
        {.code = "net.flap",
         .severity = is_down ? Severity::critical : Severity::warning,
         .blame = Blame::fabric,
         .entity = name,
         .message = fmt::format("the link went down {} in {}{}{}", times == 1 ? "once" : fmt::format("{} times", times),
                                format_duration(now_s_ - begin_s_),
                                longest_s > 0 ? fmt::format(", for up to {}", format_duration(longest_s)) : "",
                                is_down ? ", and still is" : ""),
         .measured = longest_s,
         .limit = least_s_,
         .unit = "s"});
  }
  return found;
}

void CounterWatch::see(const std::string& node, const Snapshot& snapshot) {
  first_.try_emplace(node, snapshot);
  last_.insert_or_assign(node, snapshot);
  flaps_.try_emplace(node, least_flap_s_).first->second.see(snapshot);
}

std::vector<Finding> CounterWatch::findings() const {
  std::vector<Finding> found;
  for (const auto& [node, snapshot] : last_) {
    std::vector<Finding> here = flaps_.at(node).findings();
    const std::size_t flaps = here.size();
    for (Finding& finding : judge_growth(first_.at(node), snapshot)) {
      const auto told = std::ranges::find(here.begin(), here.begin() + static_cast<std::ptrdiff_t>(flaps),
                                          finding.entity, &Finding::entity);
      const bool is_loss = finding.code == "net.flap" || finding.code == "net.down";
      if (!is_loss || told == here.begin() + static_cast<std::ptrdiff_t>(flaps)) here.push_back(std::move(finding));
    }
    for (Finding& finding : here) {
      if (last_.size() > 1) finding.entity = node + " " + finding.entity;
      found.push_back(std::move(finding));
    }
  }
  return found;
}

}  // namespace ms::net
